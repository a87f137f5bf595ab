//! Calls to Redis: one command, one script, or several commands with one tag.
//!
//! Every call has at least one [`Key`], and all its keys share a tag. Both are checked before anything is sent.

use redis::{Cmd, ToRedisArgs};

use super::{Error, key::Key};

/// Command or script call with its keys and arguments, in the order that Redis expects.
#[derive(Clone, Debug)]
pub struct Command {
    name: &'static str,
    body: Body,
    routing: Routing,
    idempotent: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Plain(Cmd),
    Script { hash: String, code: &'static str, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>> },
}

impl Command {
    /// Creates the command `name`, for example `"ZADD"`. The name is also the metric label.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, body: Body::Plain(redis::cmd(name)), routing: Routing::Unset, idempotent: false }
    }

    /// Appends a key to the call.
    #[must_use]
    pub fn key(mut self, key: &Key) -> Self {
        self.routing.add(key);
        match &mut self.body {
            Body::Plain(cmd) => {
                cmd.arg(key);
            }
            Body::Script { keys, .. } => keys.push(key.as_str().as_bytes().to_vec()),
        }
        self
    }

    /// Appends an argument; a collection appends one argument per item.
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        match &mut self.body {
            Body::Plain(cmd) => {
                cmd.arg(argument);
            }
            Body::Script { arguments, .. } => arguments.extend(argument.to_redis_args()),
        }
        self
    }

    /// Declares that running the command twice has the effect of running it once, even with a delay. Only then is it
    /// sent again after an attempt whose reply was lost.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Returns the key whose slot the command goes to.
    pub(super) fn routing_key(&self) -> Result<&Key, Error> {
        self.routing.key(self.name)
    }

    /// Renders the command for the driver. `with_code` sends a script's code instead of its hash, which also loads it
    /// on the node.
    pub(super) fn render(&self, with_code: bool) -> Cmd {
        match &self.body {
            Body::Plain(cmd) => cmd.clone(),
            Body::Script { hash, code, keys, arguments } => {
                let mut cmd = redis::cmd(if with_code { "EVAL" } else { "EVALSHA" });
                if with_code {
                    cmd.arg(*code);
                } else {
                    cmd.arg(hash);
                }
                cmd.arg(keys.len()).arg(keys).arg(arguments);
                cmd
            }
        }
    }
}

/// A Lua script that nodes cache by its hash.
///
/// A script that writes must be idempotent by its arguments (a request id, an expected revision), so that its calls can
/// be marked [`Command::idempotent`].
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    code: &'static str,
    hash: String,
}

impl Script {
    /// Creates the script `code`, usually `include_str!("….lua")`; `name` is its metric label. Store it in a
    /// `LazyLock`.
    #[must_use]
    pub fn new(name: &'static str, code: &'static str) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        Self { name, code, hash }
    }

    /// Creates a call: append its keys and arguments, then pass it to [`Redis::run`](super::Redis::run).
    #[must_use]
    pub fn call(&self) -> Command {
        let body = Body::Script {
            hash: self.hash.clone(),
            code: self.code,
            keys: Vec::new(),
            arguments: Vec::new(),
        };
        Command { name: self.name, body, routing: Routing::Unset, idempotent: false }
    }
}

/// Commands with one tag that are sent together. Their replies form one list.
#[derive(Clone, Debug)]
pub struct Pipeline {
    name: &'static str,
    commands: Vec<Command>,
    atomic: bool,
}

impl Pipeline {
    /// Creates an empty pipeline; `name` is its metric label.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, commands: Vec::new(), atomic: false }
    }

    /// Appends a command. The pipeline is idempotent if all its commands are.
    #[must_use]
    pub fn push(mut self, command: Command) -> Self {
        self.commands.push(command);
        self
    }

    /// Runs all commands in one transaction (MULTI).
    #[must_use]
    pub fn atomic(mut self) -> Self {
        self.atomic = true;
        self
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns true if there are no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_atomic(&self) -> bool {
        self.atomic
    }

    pub(super) fn is_idempotent(&self) -> bool {
        self.commands.iter().all(Command::is_idempotent)
    }

    pub(super) fn routing_key(&self) -> Result<&Key, Error> {
        let mut first: Option<&Key> = None;
        for command in &self.commands {
            let key = command.routing_key()?;
            match first {
                None => first = Some(key),
                Some(known) if known.tag() == key.tag() => {}
                Some(known) => return Err(cross_tag(self.name, known.tag(), key.tag())),
            }
        }
        first.ok_or(Error::NoKey { command: self.name })
    }

    pub(super) fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Renders scripts by their code: a node would report an unknown hash only after the other commands have run.
    pub(super) fn render(&self) -> Vec<Cmd> {
        self.commands.iter().map(|command| command.render(true)).collect()
    }
}

/// Slot of a call, collected from its keys.
#[derive(Clone, Debug)]
enum Routing {
    Unset,
    At(Key),
    Split { first: String, second: String },
}

impl Routing {
    fn add(&mut self, key: &Key) {
        match self {
            Self::Unset => *self = Self::At(key.clone()),
            Self::At(known) if known.tag() == key.tag() => {}
            Self::At(known) => {
                *self = Self::Split { first: known.tag().to_owned(), second: key.tag().to_owned() };
            }
            Self::Split { .. } => {}
        }
    }

    fn key(&self, command: &'static str) -> Result<&Key, Error> {
        match self {
            Self::Unset => Err(Error::NoKey { command }),
            Self::At(key) => Ok(key),
            Self::Split { first, second } => Err(cross_tag(command, first, second)),
        }
    }
}

fn cross_tag(command: &'static str, first: &str, second: &str) -> Error {
    Error::CrossTag { command, first: first.to_owned(), second: second.to_owned() }
}
