//! Text → program. The text itself bounds every number that determines a size: nothing is allocated for what is merely
//! announced.

use super::token::{ParseError, Token, tokens};
use crate::{
    After, Algorithm, Buffer, BufferKind, Collective, Contract, DType, Kernel, KernelSpec, Node, Op, Program,
    RankProgram, Record, ReduceOp, Share, Slice, Source, Space,
};
use hocket_ids::{BufferId, KernelId, OpId, Rank, SourceId, Tag};
use std::str::FromStr;

type Parsed<T> = Result<T, ParseError>;

/// Parses the output of `Display` of a program.
pub fn parse(text: &str) -> Parsed<Program> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0 };
    parser.word("program")?;
    let name = parser.string()?;
    parser.word("world")?;
    let world: usize = parser.number("the number of ranks")?;
    let mut program = Program { name, ..Program::default() };
    while parser.take("source") {
        let file = parser.string()?;
        program.sources.push(Source { file, line: parser.number("a line")? });
    }
    while parser.take("kernel") {
        program.kernels.push(parser.kernel()?);
    }
    while parser.take("ensures") {
        program.ensures.push(parser.contract()?);
    }
    while parser.peek().is_some() {
        parser.word("rank")?;
        let place = parser.place();
        let rank: usize = parser.number("a rank")?;
        if rank != program.ranks.len() || rank >= world {
            return Err(place.expected(format!("rank {} of {world}", program.ranks.len())));
        }
        program.ranks.push(parser.rank()?);
    }
    if program.ranks.len() != world {
        return Err(parser.place().expected(format!("rank {} of {world}", program.ranks.len())));
    }
    Ok(program)
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

/// A position for an error.
struct Place {
    line: u32,
    column: u32,
}

impl Place {
    fn expected(&self, what: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, expected: what.into() }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    fn place(&self) -> Place {
        match self.tokens.get(self.at).or(self.tokens.last()) {
            Some(token) => Place { line: token.line, column: token.column },
            None => Place { line: 1, column: 1 },
        }
    }

    fn next(&mut self, what: &str) -> Parsed<&'a str> {
        let text = self.peek().ok_or_else(|| self.place().expected(format!("{what}, the text ends")))?;
        self.at += 1;
        Ok(text)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        let place = self.place();
        if self.take(word) { Ok(()) } else { Err(place.expected(format!("`{word}`"))) }
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Parsed<T> {
        let place = self.place();
        self.next(what)?.parse().map_err(|_| place.expected(what))
    }

    fn string(&mut self) -> Parsed<String> {
        let place = self.place();
        let quoted = self.next("a string")?;
        let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        inner.and_then(unescape).ok_or_else(|| place.expected("a string"))
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let place = self.place();
        DType::parse(self.next("an element type")?).ok_or_else(|| place.expected("an element type"))
    }

    /// The host's space is not printed, but accepted.
    fn space(&mut self) -> Space {
        let named = self.peek().and_then(Space::parse);
        self.at += usize::from(named.is_some());
        named.unwrap_or_default()
    }

    fn reduce_op(&mut self) -> Parsed<ReduceOp> {
        let place = self.place();
        ReduceOp::parse(self.next("a reduction")?).ok_or_else(|| place.expected("a reduction"))
    }

    fn buffer(&mut self) -> Parsed<BufferId> {
        self.word("%")?;
        Ok(BufferId(self.number("a buffer")?))
    }

    fn kernel(&mut self) -> Parsed<KernelSpec> {
        let name = self.string()?;
        let elementwise = self.take("elementwise");
        if !elementwise {
            self.word("whole")?;
        }
        let updates = self.take("updates");
        let joins = if self.take("joins") { Some(self.reduce_op()?) } else { None };
        let mut parameters = Vec::new();
        while self.peek().is_some_and(|text| text.parse::<f64>().is_ok()) {
            parameters.push(self.number("a number")?);
        }
        Ok(KernelSpec { name, elementwise, updates, joins, parameters })
    }

    fn contract(&mut self) -> Parsed<Contract> {
        if self.take("same") {
            let buffer = self.buffer()?;
            self.word("over")?;
            return Ok(Contract::Same { buffer, group: self.ranks()? });
        }
        if self.take("all_gather") {
            let buffer = self.buffer()?;
            self.word("over")?;
            return Ok(Contract::AllGather { buffer, group: self.ranks()? });
        }
        if self.take("from_owners") {
            let buffer = self.buffer()?;
            self.word("over")?;
            return Ok(Contract::FromOwners { buffer, group: self.ranks()?, shares: self.shares()? });
        }
        let to_owners = self.take("to_owners");
        if !to_owners {
            self.word("all_reduce")?;
        }
        let op = self.reduce_op()?;
        self.word("scale")?;
        let scale = self.number("a factor")?;
        let buffer = self.buffer()?;
        self.word("over")?;
        let group = self.ranks()?;
        if to_owners {
            return Ok(Contract::ToOwners { buffer, group, op, scale, shares: self.shares()? });
        }
        Ok(Contract::AllReduce { buffer, group, op, scale })
    }

    fn shares(&mut self) -> Parsed<Vec<Share>> {
        let mut shares = Vec::new();
        while self.take("owner") {
            let owner = Rank(self.number("a rank")?);
            let (start, stop) = self.span()?;
            shares.push(Share { owner, start, stop });
        }
        Ok(shares)
    }

    fn slice(&mut self) -> Parsed<Slice> {
        let buffer = self.buffer()?;
        let (start, stop) = self.span()?;
        Ok(Slice::new(buffer, start, stop))
    }

    fn span(&mut self) -> Parsed<(usize, usize)> {
        self.word("[")?;
        let start = self.number("the first element")?;
        self.word(":")?;
        let place = self.place();
        let stop = self.number("one past the last element")?;
        self.word("]")?;
        if stop < start {
            return Err(place.expected(format!("an end of at least {start}")));
        }
        Ok((start, stop))
    }

    /// Numbers up to the next word that is not one.
    fn numbers(&mut self) -> Parsed<Vec<u32>> {
        let mut found = Vec::new();
        // `7:` begins the next node.
        while self.peek().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
            && self.tokens.get(self.at + 1).is_none_or(|after| after.text != ":")
        {
            found.push(self.number("a number")?);
        }
        Ok(found)
    }

    fn ranks(&mut self) -> Parsed<Vec<Rank>> {
        Ok(self.numbers()?.into_iter().map(Rank).collect())
    }

    fn rank(&mut self) -> Parsed<RankProgram> {
        let mut rank = RankProgram::default();
        self.word("{")?;
        while self.peek() == Some("%") {
            let place = self.place();
            if self.buffer()?.index() != rank.buffers.len() {
                return Err(place.expected(format!("buffer %{}", rank.buffers.len())));
            }
            self.word("=")?;
            let place = self.place();
            let kind = match self.next("bound, scratch, state or shared_state")? {
                "bound" => BufferKind::Bound,
                "scratch" => BufferKind::Scratch,
                "state" => BufferKind::State,
                "shared_state" => BufferKind::SharedState,
                _ => return Err(place.expected("bound, scratch, state or shared_state")),
            };
            let space = self.space();
            let dtype = self.dtype()?;
            let len = self.number("a number of elements")?;
            rank.buffers.push(Buffer { name: self.string()?, dtype, len, kind, space });
        }
        while !self.take("}") {
            let place = self.place();
            let id: usize = self.number("an op's number or `}`")?;
            if id != rank.nodes.len() {
                return Err(place.expected(format!("op {}", rank.nodes.len())));
            }
            self.word(":")?;
            rank.nodes.push(self.node()?);
        }
        Ok(rank)
    }

    fn node(&mut self) -> Parsed<Node> {
        let op = self.op()?;
        let mut after = After::new();
        if self.take("after") {
            after = self.numbers()?.into_iter().map(OpId).collect();
        }
        let mut source = None;
        if self.take("from") {
            self.word("source")?;
            source = Some(SourceId(self.number("a source")?));
        }
        Ok(Node { op, after, source })
    }

    fn op(&mut self) -> Parsed<Op> {
        let place = self.place();
        match self.next("an op")? {
            "copy" => self.between("to").map(|(src, dst)| Op::Copy { src, dst }),
            "cast" => self.between("to").map(|(src, dst)| Op::Cast { src, dst }),
            "reduce" => {
                let op = self.reduce_op()?;
                self.between("into").map(|(src, dst)| Op::Reduce { op, src, dst })
            }
            "apply" => self.apply(),
            "send" => {
                let src = self.slice()?;
                self.word("as")?;
                let wire = self.dtype()?;
                let (peer, tag, count) = self.message("to")?;
                Ok(Op::Send { src, wire, peer, tag, count })
            }
            "recv" => {
                let dst = self.slice()?;
                self.word("as")?;
                let wire = self.dtype()?;
                let reduce = if self.take("store") {
                    None
                } else {
                    self.word("reduce")?;
                    Some(self.reduce_op()?)
                };
                let (peer, tag, count) = self.message("from")?;
                Ok(Op::Recv { dst, wire, reduce, peer, tag, count })
            }
            "record" => {
                self.word("non_finite")?;
                Ok(Op::Record { what: Record::NonFinite, src: self.slice()? })
            }
            "call" => {
                let kernel = KernelId(self.number("a kernel")?);
                let inputs = self.slices()?;
                self.word("into")?;
                Ok(Op::Call { kernel, inputs, outputs: self.slices()? })
            }
            name => self.collective(name, &place),
        }
    }

    fn between(&mut self, word: &str) -> Parsed<(Slice, Slice)> {
        let src = self.slice()?;
        self.word(word)?;
        Ok((src, self.slice()?))
    }

    fn apply(&mut self) -> Parsed<Op> {
        let kernel = if self.take("scale") {
            Kernel::Scale(self.number("a factor")?)
        } else {
            self.word("round")?;
            Kernel::Round(self.dtype()?)
        };
        Ok(Op::Apply { kernel, dst: self.slice()? })
    }

    fn slices(&mut self) -> Parsed<Vec<Slice>> {
        let mut found = Vec::new();
        while self.peek() == Some("%") {
            found.push(self.slice()?);
        }
        Ok(found)
    }

    fn message(&mut self, direction: &str) -> Parsed<(Rank, Tag, Option<Slice>)> {
        self.word(direction)?;
        let peer = Rank(self.number("a rank")?);
        self.word("tag")?;
        let tag = Tag(self.number("a tag")?);
        let count = if self.take("count") { Some(self.slice()?) } else { None };
        Ok((peer, tag, count))
    }

    fn collective(&mut self, name: &str, place: &Place) -> Parsed<Op> {
        let mut op = ReduceOp::Sum;
        let mut scale = 1.0;
        if matches!(name, "all_reduce" | "reduce_scatter" | "reduce_to") {
            op = self.reduce_op()?;
            self.word("scale")?;
            scale = self.number("a factor")?;
        }
        let slice = self.slice()?;
        let what = match name {
            "all_reduce" => Collective::AllReduce,
            "reduce_scatter" => Collective::ReduceScatter,
            "all_gather" => Collective::AllGather,
            "broadcast" => Collective::Broadcast { root: self.root()? },
            "reduce_to" => Collective::Reduce { root: self.root()? },
            "gather" => Collective::Gather { root: self.root()? },
            "scatter" => Collective::Scatter { root: self.root()? },
            "all_to_all" => {
                self.word("to")?;
                Collective::AllToAll { dst: self.slice()? }
            }
            _ => return Err(place.expected("an op")),
        };
        self.word("over")?;
        let group = self.ranks()?;
        self.word("by")?;
        Ok(Op::Collective { what, slice, group, op, scale, algorithm: self.algorithm()? })
    }

    fn root(&mut self) -> Parsed<Rank> {
        self.word("root")?;
        Ok(Rank(self.number("a rank")?))
    }

    fn algorithm(&mut self) -> Parsed<Option<Algorithm>> {
        let place = self.place();
        Ok(Some(match self.next("an algorithm")? {
            "unplanned" => return Ok(None),
            "library" => Algorithm::Library { name: self.string()? },
            name => Algorithm::new(name, self.numbers()?)
                .map_err(|refused| place.expected(format!("an algorithm ({refused})")))?,
        }))
    }
}

/// The inverse of `escape_default`; `None` for any other text.
fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match chars.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'u' => {
                let code: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                char::from_u32(u32::from_str_radix(&code, 16).ok()?)?
            }
            same @ ('\\' | '"' | '\'') => same,
            _ => return None,
        });
    }
    Some(plain)
}
