// Work of the tests' device: queues that do nothing until somebody waits, in an order that a seed draws.
//
// No thread runs the device. Whoever waits for an event runs what that event needs, and, as the seed has it, some of what it does
// not need. So each order that streams and events allow comes, and none that they forbid, on a machine of any speed.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace hostile {

constexpr size_t ARENA = size_t(8) << 30;
constexpr size_t GRAIN = 512;
constexpr int DEVICES = 4;
constexpr unsigned char POISON = 0xFF;  // not a number, in every type of floating point

using Run = std::function<void()>;

// A place in a stream's work, reached when all before it is done.
struct Mark {
  bool reached = false;
  int64_t stream = 0;
  int64_t asks = 0;
};
using MarkPtr = std::shared_ptr<Mark>;

struct Item {
  Run run;         // or
  MarkPtr waits;   // blocks the stream until it is reached, or
  MarkPtr marks;   // is reached
};

struct Block {
  char* start;
  size_t size, asked;
  int device;
  int64_t stream;
  std::vector<int64_t> users;  // other streams, which `record_stream` named
  std::vector<MarkPtr> ends;   // of their work, once the block is free
};

// Streams of all devices, and their memory. A stream's key is `device << 32 | id`.
class Machine {
 public:
  // How likely other work runs whenever somebody waits (`eager`) and whenever work is given (`early`), in percent.
  int eager = 0, early = 0;
  bool streamless = false;

  void seed(uint64_t number) { draw_.seed(number); }

  void give(int64_t stream, Run run) {
    add(stream, Item{std::move(run), nullptr, nullptr});
  }

  MarkPtr mark(int64_t stream) {
    auto made = std::make_shared<Mark>();
    made->stream = stream;
    add(stream, Item{nullptr, nullptr, made});
    return made;
  }

  void wait(int64_t stream, const MarkPtr& mark) {
    if (mark) add(stream, Item{nullptr, mark, nullptr});
  }

  bool query(const MarkPtr& mark) {
    // Who only asks, again and again, is answered in the end: each time, twice as much has run.
    Section section(*this);
    if (!mark) return true;
    for (int64_t left = int64_t(1) << std::min<int64_t>(mark->asks++, 30); left > 0 && !mark->reached; left--) one(mark);
    return mark->reached;
  }

  void synchronize(const MarkPtr& mark) {
    Section section(*this);
    if (!mark) return;
    while (lucky(eager) && any()) {
    }
    while (!mark->reached) one(mark);
    raise();
  }

  void synchronize_stream(int64_t stream) { synchronize(mark(stream)); }

  void synchronize_device(int device) {
    std::vector<int64_t> keys;
    {
      Section section(*this);
      for (auto& [key, queue] : queues_)
        if (key >> 32 == device) keys.push_back(key);
    }
    for (auto key : keys) synchronize_stream(key);
  }

  // Memory. Its addresses are those of pages that nobody may touch; `inside` are the same bytes for work of the device.
  char* allocate(size_t asked, int device, int64_t stream) {
    size_t size = (std::max(asked, size_t(1)) + GRAIN - 1) / GRAIN * GRAIN;
    char* start = nullptr;
    {
      Section section(*this);
      open();
      reclaim();
      auto& list = free_[{device, stream, size}];
      if (!list.empty()) {
        start = list.back();
        list.pop_back();
      } else {
        if (used_ + size > ARENA) throw std::runtime_error("hostile device: out of memory");
        start = outside_ + used_;
        used_ += size;
      }
      blocks_[start] = Block{start, size, asked, device, stream, {}, {}};
    }
    poison(stream, start, size);
    return start;
  }

  void release(char* start) {
    Block block;
    {
      Section section(*this);
      block = blocks_.at(start);
    }
    // In the order of the stream that had it: whoever reads it on another one, untold, reads this.
    if (block.users.empty()) poison(block.stream, start, block.size);
    for (auto user : block.users) block.ends.push_back(mark(user));
    Section section(*this);
    blocks_.erase(start);
    if (block.ends.empty()) {
      free_[{block.device, block.stream, block.size}].push_back(start);
    } else {
      leaving_.push_back(std::move(block));
    }
  }

  void used_by(const void* address, int64_t stream) {
    Section section(*this);
    auto found = blocks_.find(const_cast<char*>(static_cast<const char*>(address)));
    if (found != blocks_.end() && found->second.stream != stream) found->second.users.push_back(stream);
  }

  // The bytes of an address for work of `device`. Work that reaches for another device's memory, or for none, ends the process.
  char* inside(const void* address, int device) {
    auto place = static_cast<const char*>(address);
    if (place < outside_ || place >= outside_ + used_) fail("work of the device is given an address of the host");
    auto found = blocks_.upper_bound(const_cast<char*>(place));
    if (found != blocks_.begin() && (--found)->second.device != device && place < found->first + found->second.size)
      fail("work of one device is given memory of another");
    return inside_ + (place - outside_);
  }

  bool is_ours(const void* address) const {
    auto place = static_cast<const char*>(address);
    return outside_ != nullptr && place >= outside_ && place < outside_ + ARENA;
  }

  // Keeps what an item of work held until nothing is locked: it may be a tensor of Python's.
  struct Section {
    explicit Section(Machine& machine) : machine_(machine), lock_(machine.lock_) { machine_.depth_++; }
    ~Section() {
      std::vector<Run> done;
      if (--machine_.depth_ == 0) done.swap(machine_.done_);
      lock_.unlock();
    }
    Machine& machine_;
    std::unique_lock<std::recursive_mutex> lock_;
  };

 private:
  void add(int64_t stream, Item item) {
    Section section(*this);
    queues_[stream].push_back(std::move(item));
    if (streamless) {
      while (any()) {
      }
      return;
    }
    while (lucky(early) && any()) {
    }
  }

  void poison(int64_t stream, char* start, size_t size) {
    give(stream, [this, start, size] { std::memset(inside_ + (start - outside_), POISON, size); });
  }

  void open() {
    if (outside_ != nullptr) return;
    int file = memfd_create("hostile", 0);
    if (file < 0 || ftruncate(file, ARENA) != 0) fail("no memory");
    outside_ = static_cast<char*>(mmap(nullptr, ARENA, PROT_NONE, MAP_SHARED, file, 0));
    inside_ = static_cast<char*>(mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    if (outside_ == MAP_FAILED || inside_ == MAP_FAILED) fail("no addresses");
    close(file);
  }

  void reclaim() {
    for (size_t at = leaving_.size(); at-- > 0;) {
      bool all = true;
      for (auto& end : leaving_[at].ends) all &= end->reached;
      if (!all) continue;
      auto& block = leaving_[at];
      free_[{block.device, block.stream, block.size}].push_back(block.start);
      leaving_.erase(leaving_.begin() + at);
    }
  }

  bool ready(const std::deque<Item>& queue) const {
    return !queue.empty() && (queue.front().waits == nullptr || queue.front().waits->reached);
  }

  void step(std::deque<Item>& queue) {
    Item item = std::move(queue.front());
    queue.pop_front();
    if (item.marks) item.marks->reached = true;
    if (!item.run) return;
    try {
      item.run();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    done_.push_back(std::move(item.run));
  }

  // Run one item that the mark needs.
  void one(MarkPtr mark) {
    while (true) {
      auto& queue = queues_[mark->stream];
      if (queue.empty()) fail("a mark is reached by nothing");
      if (ready(queue)) return step(queue);
      mark = queue.front().waits;
    }
  }

  // Run one item of some stream; false: there is none to run.
  bool any() {
    std::vector<std::deque<Item>*> able;
    for (auto& [key, queue] : queues_)
      if (ready(queue)) able.push_back(&queue);
    if (able.empty()) return false;
    step(*able[draw_() % able.size()]);
    return true;
  }

  bool lucky(int percent) { return int(draw_() % 100) < percent; }

  void raise() {
    if (!failure_) return;
    auto failure = failure_;
    failure_ = nullptr;
    std::rethrow_exception(failure);
  }

  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "hostile device: %s\n", why);
    std::abort();
  }

  std::recursive_mutex lock_;
  int depth_ = 0;
  std::mt19937_64 draw_;
  std::map<int64_t, std::deque<Item>> queues_;
  std::vector<Run> done_;
  std::exception_ptr failure_;
  char *outside_ = nullptr, *inside_ = nullptr;
  size_t used_ = 0;
  std::map<char*, Block> blocks_;
  std::map<std::tuple<int, int64_t, size_t>, std::vector<char*>> free_;
  std::vector<Block> leaving_;
};

inline Machine& machine() {
  static Machine* one = new Machine;  // outlives all tensors
  return *one;
}

}  // namespace hostile
