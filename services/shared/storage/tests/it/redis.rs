//! Redis client on a healthy cluster: commands, scripts, pipelines, and calls that are refused before anything is sent.
//! The other Redis tests use its helpers too.

use std::{sync::LazyLock, time::Duration};

use onsale_kit::{
    deadline::Deadline,
    error::{Kind, ServiceError},
};
use onsale_storage::redis::{Command, Error, Key, Keyspace, Pipeline, Redis, RedisConfig, Script};
use onsale_testkit::stack::{self, RedisCluster};
use tokio::time::Instant;

/// Returns a client of the shared cluster, with a key prefix of its own.
pub(crate) async fn client() -> Redis {
    let share = stack::redis().await.unwrap();
    Redis::connect(&RedisConfig::new(share.urls, share.prefix)).await.unwrap()
}

/// Returns settings for a cluster that the test breaks.
pub(crate) fn config(cluster: &RedisCluster) -> RedisConfig {
    RedisConfig::new(cluster.urls(), "test")
}

/// Returns the keyspace of a test.
pub(crate) fn keys(redis: &Redis) -> Keyspace {
    redis.keyspace("storage").unwrap()
}

/// Returns a key in the given third of the slots, which belongs to one master in a cluster with three.
pub(crate) fn key_on_shard(keys: &Keyspace, name: &str, shard: u16) -> Key {
    let on_shard = |key: &Key| u32::from(key.slot()) * 3 / 16_384 == u32::from(shard);
    (0..1_000)
        .map(|tag| keys.key(name, tag).unwrap())
        .find(on_shard)
        .expect("no tag of a thousand is in this third")
}

static ADD_TWO: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "add_two",
        "redis.call('INCRBY', KEYS[1], ARGV[1])
         return redis.call('INCRBY', KEYS[2], ARGV[2])",
    )
});

static SELL: LazyLock<Script> = LazyLock::new(|| {
    Script::new("sell", "return redis.error_reply('SOLDOUT none of ' .. KEYS[1] .. ' left')")
});

static SELL_TABLE: LazyLock<Script> =
    LazyLock::new(|| Script::new("sell_table", "return {err = 'SOLDOUT none left'}"));

#[tokio::test]
async fn reply_is_converted_to_the_requested_type() {
    let redis = client().await;
    let key = keys(&redis).key("line", "event").unwrap();
    let added: u64 = redis.run(Command::new("ZADD").key(&key).arg(1).arg("a").arg(2).arg("b")).await.unwrap();
    assert_eq!(added, 2);
    let members: Vec<(String, u64)> = redis
        .run(Command::new("ZRANGE").key(&key).arg(0).arg(-1).arg("WITHSCORES").idempotent())
        .await
        .unwrap();
    assert_eq!(members, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    let missing: Option<u64> =
        redis.run(Command::new("ZSCORE").key(&key).arg("c").idempotent()).await.unwrap();
    assert_eq!(missing, None);
}

#[tokio::test]
async fn reply_of_another_type_is_an_error() {
    let redis = client().await;
    let key = keys(&redis).key("text", "event").unwrap();
    let () = redis.run(Command::new("SET").key(&key).arg("words")).await.unwrap();
    let error = redis.run::<u64>(Command::new("GET").key(&key)).await.unwrap_err();
    assert!(matches!(error, Error::Reply { command: "GET", .. }), "{error:?}");
    assert_eq!(error.kind(), Kind::Internal);
}

#[tokio::test]
async fn refused_command_is_typed_and_not_retried() {
    let redis = client().await;
    let key = keys(&redis).key("text", "event").unwrap();
    let () = redis.run(Command::new("SET").key(&key).arg("words")).await.unwrap();
    let error = redis.run::<u64>(Command::new("ZCARD").key(&key).idempotent()).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}

#[tokio::test]
async fn a_script_gets_its_keys_and_arguments() {
    let redis = client().await;
    let [first, second] = ["first", "second"].map(|name| keys(&redis).key(name, "event").unwrap());
    for expected in [20_u64, 40] {
        let call = ADD_TWO.call().key(&first).arg(10).key(&second).arg(20);
        assert_eq!(redis.run::<u64>(call).await.unwrap(), expected);
    }
    assert_eq!(redis.run::<u64>(Command::new("GET").key(&first)).await.unwrap(), 20);
}

#[tokio::test]
async fn code_of_a_script_error_reaches_the_caller() {
    let redis = client().await;
    let key = keys(&redis).key("sector", "event").unwrap();
    for script in [&SELL, &SELL_TABLE] {
        let error = redis.run::<u64>(script.call().key(&key)).await.unwrap_err();
        assert_eq!(error.code(), Some("SOLDOUT"), "{error}");
        assert!(error.to_string().contains("left"), "{error}");
    }
}

#[tokio::test]
async fn keys_with_different_tags_are_refused_before_sending() {
    let redis = client().await;
    let [first, second] = ["event-a", "event-b"].map(|tag| keys(&redis).key("count", tag).unwrap());
    let error = redis.run::<u64>(ADD_TWO.call().key(&first).key(&second).arg(1).arg(1)).await.unwrap_err();
    assert!(
        matches!(&error, Error::CrossTag { command: "add_two", first, second } if first == "event-a" && second == "event-b"),
        "{error:?}"
    );
    let pipeline =
        Pipeline::new("two").push(Command::new("INCR").key(&first)).push(Command::new("INCR").key(&second));
    let error = redis.run_all::<Vec<u64>>(pipeline).await.unwrap_err();
    assert!(matches!(error, Error::CrossTag { .. }), "{error:?}");
    for key in [&first, &second] {
        assert_eq!(redis.run::<Option<u64>>(Command::new("GET").key(key)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_refused() {
    let redis = client().await;
    let error = redis.run::<String>(Command::new("PING")).await.unwrap_err();
    assert!(matches!(error, Error::NoKey { command: "PING" }), "{error:?}");
    let error = redis.run_all::<Vec<u64>>(Pipeline::new("none")).await.unwrap_err();
    assert!(matches!(error, Error::NoKey { command: "none" }), "{error:?}");
}

#[tokio::test]
async fn pipeline_replies_are_in_order() {
    let redis = client().await;
    let [first, second] = ["first", "second"].map(|name| keys(&redis).key(name, "event").unwrap());
    for atomic in [false, true] {
        let pipeline = Pipeline::new("set_and_read")
            .push(Command::new("SET").key(&first).arg("x"))
            .push(Command::new("INCR").key(&second))
            .push(Command::new("GET").key(&first));
        let pipeline = if atomic { pipeline.atomic() } else { pipeline };
        let (_ok, count, text): (String, u64, String) = redis.run_all(pipeline).await.unwrap();
        assert_eq!((count, text.as_str()), (u64::from(atomic) + 1, "x"));
    }
}

#[tokio::test]
async fn atomic_pipeline_runs_all_commands_or_none() {
    let redis = client().await;
    let key = keys(&redis).key("count", "event").unwrap();
    let pipeline = Pipeline::new("bad")
        .push(Command::new("INCR").key(&key))
        // Refused when it is queued, so EXEC runs nothing.
        .push(Command::new("GET").key(&key).arg("one argument too many"))
        .atomic();
    let error = redis.run_all::<Vec<u64>>(pipeline).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert_eq!(redis.run::<Option<u64>>(Command::new("GET").key(&key)).await.unwrap(), None);
}

#[tokio::test]
async fn unknown_script_in_a_pipeline_runs_once() {
    // A unique name, so that no node knows the script's hash.
    let code: &'static str =
        format!("return redis.call('INCR', KEYS[1]) -- {}", rand::random::<u64>()).leak();
    let script = Script::new("unknown", code);
    let redis = client().await;
    let [plain, scripted] = ["plain", "scripted"].map(|name| keys(&redis).key(name, "event").unwrap());
    for atomic in [true, false] {
        let pipeline =
            Pipeline::new("mixed").push(Command::new("INCR").key(&plain)).push(script.call().key(&scripted));
        let pipeline = if atomic { pipeline.atomic() } else { pipeline };
        let counts: (u64, u64) = redis.run_all(pipeline).await.unwrap();
        let expected = if atomic { 1 } else { 2 };
        assert_eq!(counts, (expected, expected));
    }
}

#[tokio::test]
async fn call_after_its_deadline_is_not_sent() {
    let redis = client().await;
    let key = keys(&redis).key("count", "event").unwrap();
    let call = redis.run::<u64>(Command::new("INCR").key(&key));
    let error = Deadline::after(Duration::ZERO).scope(call).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { command: "INCR" }), "{error:?}");
    assert_eq!(error.kind(), Kind::Timeout);
    assert_eq!(redis.run::<Option<u64>>(Command::new("GET").key(&key)).await.unwrap(), None);
}

#[tokio::test]
async fn many_callers_share_two_connections() {
    let redis = client().await;
    let begin = Instant::now();
    let calls = (0..2_000_u32).map(|tag| {
        let key = keys(&redis).key("count", tag % 50).unwrap();
        let redis = redis.clone();
        async move { redis.run::<u64>(Command::new("INCR").key(&key)).await }
    });
    for answer in futures_util::future::join_all(calls).await {
        answer.unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn invalid_settings_are_refused_at_start() {
    let good = RedisConfig::new(vec!["redis://127.0.0.1:1".to_owned()], "test");
    let no_nodes = RedisConfig { nodes: Vec::new(), ..good.clone() };
    let no_time = RedisConfig { command_timeout: Duration::ZERO, ..good.clone() };
    let no_connections = RedisConfig { connections: 0, ..good.clone() };
    for config in [no_nodes, no_time, no_connections] {
        let error = Redis::connect(&config).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
    }
    let brace = RedisConfig { prefix: "a{b".to_owned(), ..good.clone() };
    assert!(matches!(Redis::connect(&brace).await.unwrap_err(), Error::Key(_)));
    let nobody_there = RedisConfig { overall_timeout: Duration::from_millis(500), ..good };
    let begin = Instant::now();
    let error = Redis::connect(&nobody_there).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn client_is_ready_when_a_node_answers() {
    client().await.ready().await.unwrap();
}

#[test]
fn settings_refuse_unknown_keys_and_hide_the_password() {
    let read = |text: &str| serde_json::from_str::<RedisConfig>(text);
    let nodes = r#""nodes": ["redis://127.0.0.1:6379"], "prefix": "dev""#;
    let config =
        read(&format!(r#"{{{nodes}, "command_timeout": "250ms", "username": "", "password": "swordfish"}}"#));
    let config = config.unwrap();
    assert_eq!((config.command_timeout, config.connections), (Duration::from_millis(250), 2));
    assert_eq!(config.username, None, "an empty name is None");
    assert!(!format!("{config:?}").contains("swordfish"));
    config.validate().unwrap();
    assert!(
        read(&format!(r#"{{{nodes}, "timeout_of_command": "250ms"}}"#)).is_err(),
        "an unknown key was accepted"
    );
    let with_password = RedisConfig::new(vec!["redis://:swordfish@127.0.0.1:6379".to_owned()], "dev");
    assert!(matches!(with_password.validate(), Err(Error::Config { .. })));
}
