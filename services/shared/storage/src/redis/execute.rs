//! Attempts of one call: where each is sent, what its failure proves, and when to stop.

use onsale_kit::{backoff::Backoff, deadline::Deadline};
use redis::{
    Cmd, RedisError, Value,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};
use tokio::time::Instant;

use super::{
    Error, RedisConfig,
    command::{Command, Pipeline},
    connection_pool::{ConnectionPool, SharedConnection},
    error::{Verdict, classify, timed_out},
    metrics,
};

/// Command or pipeline to send.
pub(super) enum Call {
    One(Command),
    Many(Pipeline),
}

impl Call {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::One(command) => command.name(),
            Self::Many(pipeline) => pipeline.name(),
        }
    }

    fn slot(&self) -> Result<u16, Error> {
        match self {
            Self::One(command) => command.routing_key(),
            Self::Many(pipeline) => pipeline.routing_key(),
        }
        .map(super::Key::slot)
    }

    fn is_idempotent(&self) -> bool {
        match self {
            Self::One(command) => command.is_idempotent(),
            Self::Many(pipeline) => pipeline.is_idempotent(),
        }
    }

    /// Returns true if a node that refuses one part has run no other part.
    fn is_all_or_none(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(pipeline) => pipeline.is_atomic(),
        }
    }
}

/// Target and form of the next attempt.
#[derive(Default)]
struct NextAttempt {
    /// Node that redirected the call while its slot moves; `None`: the master of the slot.
    ask: Option<(String, u16)>,
    /// Send scripts by code instead of by hash.
    with_code: bool,
}

/// Runs `call` until a node replies or refuses it, or until it must not be sent again.
pub(super) async fn execute(
    pool: &ConnectionPool,
    config: &RedisConfig,
    call: &Call,
) -> Result<Value, Error> {
    let slot = call.slot()?;
    let command = call.name();
    let deadline = Deadline::current_or_after(config.overall_timeout);
    let mut backoff = Backoff::new(config.retry);
    let mut next = NextAttempt::default();
    // Once an attempt may have run, a later refusal does not prove that none did.
    let mut may_have_run = false;
    loop {
        if deadline.is_past() {
            return Err(out_of_time(command, may_have_run));
        }
        let shared = match pool.get(command, deadline).await {
            Ok(shared) => shared,
            Err(_error) if may_have_run => return Err(out_of_time(command, may_have_run)),
            Err(error) => return Err(error),
        };
        let source = match attempt(&shared, config, call, slot, &next, deadline).await {
            Ok(value) => return Ok(value),
            Err(source) => source,
        };
        let verdict = classify(&source);
        may_have_run |=
            verdict == Verdict::Ambiguous || (verdict != Verdict::Refused && !call.is_all_or_none());
        if verdict == Verdict::Refused {
            return Err(refused(command, &source));
        }
        if may_have_run && !call.is_idempotent() {
            return Err(Error::Unknown { command, source });
        }
        if let (Call::Many(pipeline), Verdict::Ask { .. }) = (call, &verdict)
            && !pipeline.is_atomic()
        {
            return Box::pin(one_by_one(pool, config, pipeline, deadline)).await;
        }
        let is_immediate = matches!(verdict, Verdict::Ask { .. } | Verdict::NoScript);
        next = match verdict {
            Verdict::Ask { host, port } => NextAttempt { ask: Some((host, port)), with_code: next.with_code },
            Verdict::NoScript => NextAttempt { with_code: true, ..next },
            Verdict::NotRun | Verdict::Ambiguous | Verdict::Refused => {
                NextAttempt { ask: None, with_code: next.with_code }
            }
        };
        let delay = backoff.next_delay().filter(|delay| *delay < deadline.remaining());
        match delay {
            None if may_have_run => return Err(Error::Unknown { command, source }),
            None => return Err(Error::Unavailable { command, source }),
            Some(_) if is_immediate => {}
            Some(delay) => tokio::time::sleep(delay).await,
        }
        metrics::retried(command);
    }
}

async fn attempt(
    shared: &SharedConnection,
    config: &RedisConfig,
    call: &Call,
    slot: u16,
    next: &NextAttempt,
    deadline: Deadline,
) -> Result<Value, RedisError> {
    let begin = Instant::now();
    // A repeatable attempt ends early if its connection is stuck, so that the next one can use the other connection.
    let attempt_max = config.command_timeout.saturating_mul(2);
    let limit = if call.is_idempotent() { deadline.min(Deadline::after(attempt_max)) } else { deadline };
    let mut connection = shared.connection.clone();
    let result = match limit.bound(send(&mut connection, call, slot, next)).await {
        Ok(result) => result,
        Err(_passed) => Err(timed_out()),
    };
    if let Err(error) = &result {
        // A timeout under a shorter caller deadline says nothing about the connection; a full command timeout does.
        let waited_long = begin.elapsed() >= config.command_timeout;
        if classify(error) == Verdict::Ambiguous && (waited_long || !error.is_timeout()) {
            shared.mark_broken();
        }
    }
    result
}

async fn send(
    connection: &mut ClusterConnection,
    call: &Call,
    slot: u16,
    next: &NextAttempt,
) -> Result<Value, RedisError> {
    let target = match &next.ask {
        Some((host, port)) => SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port },
        None => SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master)),
    };
    let asking = next.ask.is_some();
    match call {
        Call::One(command) if !asking => {
            let routing = RoutingInfo::SingleNode(target);
            connection.route_command(command.render(next.with_code), routing).await?.extract_error()
        }
        Call::One(command) => {
            // In one write, so that no other caller's command can use up the permission.
            let frames = vec![redis::cmd("ASKING"), command.render(next.with_code)];
            let mut replies = send_frames(connection, frames, target).await?;
            replies.pop().unwrap_or_default().extract_error()
        }
        Call::Many(pipeline) if pipeline.is_atomic() => {
            let mut frames = Vec::with_capacity(pipeline.len().saturating_add(3));
            // One ASKING before MULTI applies up to EXEC.
            frames.extend(asking.then(|| redis::cmd("ASKING")));
            frames.push(redis::cmd("MULTI"));
            frames.extend(pipeline.render());
            frames.push(redis::cmd("EXEC"));
            let mut replies = send_frames(connection, frames, target).await?;
            let outcome = replies.pop().unwrap_or_default();
            // The error of a queued command is more specific than EXEC's "aborted".
            for reply in replies {
                reply.extract_error()?;
            }
            outcome.extract_error()
        }
        Call::Many(pipeline) => {
            let replies = send_frames(connection, pipeline.render(), target).await?;
            Value::Array(replies).extract_error()
        }
    }
}

/// Runs the commands of a pipeline one by one while their slot moves to another node. Some keys have moved and some
/// have not; sent together, a command could create a second copy of a key that has not moved yet.
async fn one_by_one(
    pool: &ConnectionPool,
    config: &RedisConfig,
    pipeline: &Pipeline,
    deadline: Deadline,
) -> Result<Value, Error> {
    let mut answers = Vec::with_capacity(pipeline.len());
    for command in pipeline.commands() {
        let call = Call::One(command.clone());
        match deadline.scope(execute(pool, config, &call)).await {
            Ok(answer) => answers.push(answer),
            // This command did not run, but earlier ones of the pipeline may have.
            Err(Error::Unavailable { command, source }) => return Err(Error::Unknown { command, source }),
            Err(Error::Deadline { command }) => return Err(out_of_time(command, true)),
            Err(error) => return Err(error),
        }
    }
    Ok(Value::Array(answers))
}

async fn send_frames(
    connection: &mut ClusterConnection,
    frames: Vec<Cmd>,
    target: SingleNodeRoutingInfo,
) -> Result<Vec<Value>, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(frames.len());
    let count = frames.len();
    for frame in frames {
        pipeline.add_command(frame);
    }
    connection.route_pipeline(pipeline, 0, count, target).await
}

fn out_of_time(command: &'static str, may_have_run: bool) -> Error {
    if may_have_run { Error::Unknown { command, source: timed_out() } } else { Error::Deadline { command } }
}

fn refused(command: &'static str, source: &RedisError) -> Error {
    let code = source.code().unwrap_or("ERR").to_owned();
    let detail = source.detail().unwrap_or_default().to_owned();
    Error::Refused { command, code, detail }
}
