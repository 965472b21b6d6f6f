"""Flows in SimGrid, in a process of its own: a description as JSON comes in, the time at which each flow ended goes out."""

import json
import sys


def main():
    import simgrid  # loads where it is installed

    asked = json.load(sys.stdin)
    options = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0")
    engine = simgrid.Engine(["flows", "--log=root.thresh:critical", *(f"--cfg={each}" for each in options)])
    zone = simgrid.NetZone.create_full_zone("zone")
    links = [zone.create_link(f"link{at}", rate).set_latency(0) for at, rate in enumerate(asked["links"])]
    ends = [0.0] * len(asked["flows"])

    def send(at):
        flow = asked["flows"][at]
        simgrid.this_actor.sleep_until(flow["start_s"])
        simgrid.Mailbox.by_name(f"box{at}").put("x", flow["bytes"])

    def receive(at):
        simgrid.Mailbox.by_name(f"box{at}").get()
        ends[at] = simgrid.Engine.clock

    hosts = []
    for at, flow in enumerate(asked["flows"]):
        source, destination = (zone.create_host(f"{side}{at}", 1e9) for side in ("source", "destination"))
        path = [simgrid.LinkInRoute(links[each]) for each in flow["links"]]
        zone.add_route(source.netpoint, destination.netpoint, None, None, path, False)
        hosts.append((source, destination))
    zone.seal()
    for at, (source, destination) in enumerate(hosts):
        simgrid.Actor.create(f"send{at}", source, send, at)
        simgrid.Actor.create(f"receive{at}", destination, receive, at)
    engine.run()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
