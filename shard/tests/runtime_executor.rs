//! The executors' own traps: a core that sleeps on work, panics, wakers, blocking calls.
#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test says what it measured

mod support;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use shard::env::Env;
use shard::runtime::histogram::HistogramImage;
use shard::runtime::{PANIC_EXIT_STATUS, Place, Runtime, RuntimeEnv, RuntimeOptions};

/// Trap D1: the executor sleeps although tasks are runnable when its preemption timer fires before the first queue of a
/// turn runs: after the core was taken away at the wrong moment. A timer barely longer than a turn and a core shared
/// with hogs make that happen all the time. With the ticker all rounds end; without it
/// (`d1_without_the_ticker_the_same_work_hangs`) they soon stop.
#[test]
fn d1_a_shard_that_fell_asleep_on_runnable_tasks_is_woken() {
    if !support::is_child() {
        support::passes_in_child("d1_a_shard_that_fell_asleep_on_runnable_tasks_is_woken");
        return;
    }
    let (mut options, _hogs) = sleepy(Duration::from_millis(5));
    let mut sleeps = 0;
    for _ in 0..40 {
        let (ended, parked) = rounds_within(&options, 5000, Duration::from_secs(3));
        println!(
            "timer {:?}: {ended} rounds, {} sleeps on work, p50 {} us, max {} us",
            options.preempt_timer,
            parked.count,
            parked.percentile_us(50.0),
            parked.max_us
        );
        if ended == 5000 {
            sleeps += parked.count;
        } else {
            // On a host this busy the timer beats the first queue of every turn, and being woken does not help.
            options.preempt_timer = options.preempt_timer * 5 / 4;
        }
        if sleeps >= 3 {
            break;
        }
    }
    assert!(
        sleeps > 0,
        "no run fell asleep on its work, was woken and came to its end"
    );
}

/// The counterpart of the test above: a ticker that does not come round. When no attempt hangs any more, the
/// runtime has been cured and the ticker can go.
#[test]
fn d1_without_the_ticker_the_same_work_hangs() {
    if !support::is_child() {
        // The hung shard stays behind with its process.
        support::passes_in_child("d1_without_the_ticker_the_same_work_hangs");
        return;
    }
    let (options, _hogs) = sleepy(Duration::from_secs(3600));
    let hung = (0..8).any(|_| rounds_within(&options, 20_000, Duration::from_secs(4)).0 < 20_000);
    assert!(hung, "every attempt came to its end without a tick");
    std::process::exit(0);
}

/// Settings with which trap D1 is frequent on this host: a preemption timer not much longer than the shortest with which a
/// turn begins at all when nobody disturbs (below it no kick helps), and two hogs on the shard's core.
fn sleepy(tick: Duration) -> (RuntimeOptions, support::Hogs) {
    let mut options = RuntimeOptions {
        preempt_timer: Duration::from_micros(10),
        tick: Duration::from_millis(1),
        ..support::options(1)
    };
    while rounds_within(&options, 500, Duration::from_secs(1)).0 < 500 {
        options.preempt_timer = options.preempt_timer * 4 / 3;
        assert!(
            options.preempt_timer < Duration::from_millis(5),
            "no turn ever begins"
        );
    }
    options.preempt_timer = options.preempt_timer * 8 / 5;
    println!("preemption timer {:?}", options.preempt_timer);
    options.tick = tick;
    let cpu = options.cpus[0];
    (options, support::hogs(&[cpu, cpu]))
}

/// How many rounds of a few tasks that wake each other end in time, and how long the shard slept on its work meanwhile.
fn rounds_within(options: &RuntimeOptions, rounds: u64, time: Duration) -> (u64, HistogramImage) {
    let done = Arc::new(AtomicU64::new(0));
    let counter = done.clone();
    let runtime = Runtime::start(
        options,
        vec![counter],
        move |env: RuntimeEnv, done: Arc<AtomicU64>| async move {
            for _ in 0..rounds {
                let (tx, rx) = flume::bounded(8);
                for i in 0..8 {
                    let tx = tx.clone();
                    env.spawn(async move { tx.send_async(i).await.unwrap() });
                }
                drop(tx);
                let mut sum = 0;
                while let Ok(i) = rx.recv_async().await {
                    sum += i;
                }
                assert_eq!(sum, 28);
                done.fetch_add(1, Ordering::SeqCst);
            }
        },
    )
    .unwrap();
    let give_up = Instant::now() + time;
    while done.load(Ordering::SeqCst) < rounds && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(5));
    }
    let ended = done.load(Ordering::SeqCst);
    let pulses = runtime.pulses();
    if ended == rounds {
        runtime.join();
    }
    (ended, pulses.read().remove(0).parked)
}

/// The ticker costs nothing when all shards are idle: it does not run at all.
#[test]
fn an_idle_node_uses_no_processor_time() {
    if !support::is_child() {
        support::passes_in_child("an_idle_node_uses_no_processor_time");
        return;
    }
    let (stop_tx, stop_rx) = flume::bounded::<()>(1);
    let runtime = Runtime::start(
        &support::options(2),
        vec![stop_rx.clone(), stop_rx],
        |_, stop: flume::Receiver<()>| async move {
            let _ = stop.recv_async().await;
        },
    )
    .unwrap();
    thread::sleep(Duration::from_millis(200));
    let before = process_time();
    thread::sleep(Duration::from_secs(2));
    let used = process_time() - before;
    println!("two idle shards used {used:?} in 2 s");
    drop(stop_tx);
    runtime.join();
    // Clock ticks of 10 ms are the kernel's grain.
    assert!(used <= Duration::from_millis(20), "{used:?}");
}

fn process_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .collect();
    let ticks = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Trap D5: a panic in the blocking pool kills its thread and its caller waits for ever. Ours comes back to the caller, and
/// the pool works on.
#[test]
fn d5_a_panic_in_a_blocking_call_comes_back_and_the_pool_lives_on() {
    let results = support::on_one_shard(|env| async move {
        let mut caught = 0;
        for _ in 0..5 {
            let panicking = env.blocking(|| -> u32 { panic!("in the pool") });
            let result = futures_lite::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(panicking)).await;
            caught += u32::from(result.is_err());
        }
        (caught, env.blocking(|| 42).await)
    });
    assert_eq!(results, (5, 42));
}

/// What is done beside the shard leaves it free for others, and a panic in it comes back to who waits.
#[test]
fn work_beside_a_shard_holds_up_nobody() {
    let (ticks, results) = support::on_one_shard(|env| async move {
        let ticks = Rc::new(Cell::new(0));
        let (counted, ticking) = (ticks.clone(), env.clone());
        env.spawn(async move {
            loop {
                ticking.sleep(Duration::from_millis(1)).await;
                counted.set(counted.get() + 1);
            }
        });
        let panicking = env.aside(|| -> u32 { panic!("beside the shard") });
        let caught = futures_lite::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(panicking)).await;
        let before = ticks.get();
        let slept = env
            .aside(|| {
                thread::sleep(Duration::from_millis(400));
                thread::current().name().map(str::to_owned)
            })
            .await;
        (ticks.get() - before, (caught.is_err(), slept))
    });
    assert_eq!(results, (true, Some("aside-0".to_owned())));
    assert!(ticks >= 20, "{ticks} ticks of a millisecond in 400");
}

/// Trap D6: a panic in a task unwinds the executor's thread and silently takes the core's partitions with it. Ours
/// says which shard and where, and ends the process with a status of its own.
#[test]
fn d6_a_panic_in_a_task_ends_the_process_with_its_own_status() {
    if support::is_child() {
        let runtime = Runtime::start(&support::options(2), vec![0, 1], |env, shard| async move {
            if shard == 1 {
                env.spawn(async { panic!("an invariant broke") });
            }
            env.sleep(Duration::from_secs(20)).await;
        })
        .unwrap();
        return runtime.join();
    }
    let output = support::child("d6_a_panic_in_a_task_ends_the_process_with_its_own_status");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(PANIC_EXIT_STATUS), "{stderr}");
    assert!(stderr.contains("shard 1"), "{stderr}");
    assert!(
        stderr.contains("runtime_executor.rs"),
        "the place that spawned it: {stderr}"
    );
    assert!(stderr.contains("an invariant broke"), "{stderr}");
}

/// Trap D9: the runtime's count of a task's wakers has 16 bits and panics beyond 32,767. Ours counts them itself, so a task
/// may wait at a hundred thousand places.
#[test]
fn d9_one_task_may_have_a_hundred_thousand_wakers() {
    let woken = support::on_one_shard(|env| async move {
        let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
        let polls = Rc::new(Cell::new(0));
        let ended = Rc::new(Cell::new(false));
        let (held, count, end) = (wakers.clone(), polls.clone(), ended.clone());
        env.spawn(async move {
            poll_fn(|cx| {
                count.set(count.get() + 1);
                if count.get() == 1 {
                    held.borrow_mut().extend((0..100_000).map(|_| cx.waker().clone()));
                }
                if count.get() < 3 {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
            end.set(true);
        });
        env.sleep(Duration::from_millis(5)).await;
        assert_eq!((wakers.borrow().len(), polls.get()), (100_000, 1));
        for _ in 0..2 {
            for waker in &*wakers.borrow() {
                waker.wake_by_ref();
            }
            env.sleep(Duration::from_millis(5)).await;
        }
        assert!(ended.get());
        // Late wakes of an ended task, also from another thread, reach nobody.
        let late = wakers.take();
        thread::spawn(move || late.into_iter().for_each(Waker::wake))
            .join()
            .unwrap();
        env.sleep(Duration::from_millis(5)).await;
        polls.get()
    });
    assert_eq!(woken, 3, "the wakes of one turn are one poll");
}

#[test]
fn a_task_that_holds_the_core_is_found_by_its_place() {
    let line = line!() + 3;
    let report = support::on_one_shard(|env| async move {
        let busy = env.clone();
        env.spawn(async move {
            busy.section("a slow section", || spin(Duration::from_millis(30)));
            spin(Duration::from_millis(10));
        });
        env.sleep(Duration::from_millis(60)).await;
        env.pulse()
    });
    let stall =
        |place: &dyn Fn(&Place) -> bool| report.stalls.iter().find(|(p, _)| place(p)).map(|(_, s)| *s);
    let section = stall(&|p| *p == Place::Section("a slow section")).unwrap();
    assert!(section.count == 1 && section.max_us >= 30_000, "{section:?}");
    let task = stall(
        &|p| matches!(p, Place::Task(file, at) if file.ends_with("runtime_executor.rs") && *at == line),
    )
    .unwrap();
    assert!(task.max_us >= 40_000, "{task:?}");
    assert!(report.poll.max_us >= 40_000);
    assert!(report.busy_us >= 40_000);
}

/// The turn histogram shows how long the reactor waited for its turn, also when no single task was slow.
#[test]
fn many_short_tasks_in_a_row_make_a_long_turn() {
    let report = support::on_one_shard(|env| async move {
        for _ in 0..50 {
            env.spawn(async { spin(Duration::from_micros(100)) });
        }
        env.sleep(Duration::from_millis(30)).await;
        env.sleep(Duration::from_millis(1)).await;
        env.pulse()
    });
    assert!(
        report.turn.max_us >= 4_000,
        "fifty times 100 us: {:?}",
        report.turn.buckets().collect::<Vec<_>>()
    );
}

#[test]
fn background_work_gets_the_lesser_share() {
    let (front, back) = support::on_one_shard(|env| async move {
        let stop = Rc::new(Cell::new(false));
        let counts = [Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64))];
        for (background, count) in counts.iter().cloned().enumerate() {
            let stop = stop.clone();
            let task = async move {
                while !stop.get() {
                    spin(Duration::from_micros(100));
                    count.set(count.get() + 1);
                    futures_lite::future::yield_now().await;
                }
            };
            if background == 1 {
                env.spawn_background(task)
            } else {
                env.spawn(task)
            }
        }
        env.sleep(Duration::from_secs(1)).await;
        stop.set(true);
        env.sleep(Duration::from_millis(50)).await;
        (counts[0].get(), counts[1].get())
    });
    println!("shares 1000:100 gave {front}:{back}");
    assert!(back > 0, "background work does not starve");
    assert!(front > 4 * back, "{front}:{back}");
}

#[test]
fn yielding_lets_timers_and_messages_in() {
    let order = support::on_one_shard(|env| async move {
        let fired = Rc::new(Cell::new(false));
        let (timer, flag) = (env.clone(), fired.clone());
        env.spawn(async move {
            timer.sleep(Duration::from_micros(50)).await;
            flag.set(true);
        });
        let mut yields = 0;
        let began = Instant::now();
        while !fired.get() && began.elapsed() < Duration::from_secs(5) {
            spin(Duration::from_micros(20));
            env.yield_to_reactor().await;
            yields += 1;
        }
        assert!(fired.get());
        yields
    });
    assert!(order < 1000, "{order} yields before a timer of 50 us fired");
}

/// [`Env::breathe`] costs a reactor turn only when the core has been held for a while.
#[test]
fn breathing_yields_in_a_long_turn_and_not_in_a_short_one() {
    let (short, long) = support::on_one_shard(|env| async move {
        env.yield_to_reactor().await;
        let polls = || env.pulse().polls;
        let before = polls();
        for _ in 0..100 {
            env.breathe().await;
        }
        let short = polls() - before;
        let before = polls();
        for _ in 0..20 {
            spin(Duration::from_micros(300));
            env.breathe().await;
        }
        (short, polls() - before)
    });
    // Not exactly none and not exactly twenty: a core that is taken away makes a turn longer, or seem to begin anew.
    assert!(short <= 10, "{short} polls for a hundred breaths without work");
    assert!(
        long >= 10,
        "{long} polls for twenty breaths after 300 us of work each"
    );
}

#[test]
fn time_moves_forward_and_random_numbers_differ() {
    let (elapsed, wall, distinct) = support::on_one_shard(|env| async move {
        let (now, wall) = (env.now(), env.wall());
        env.sleep(Duration::from_millis(20)).await;
        let numbers: std::collections::BTreeSet<_> = (0..1000).map(|_| env.random()).collect();
        (env.now().since(now), wall.0, numbers.len())
    });
    assert!(elapsed >= Duration::from_millis(20));
    assert!(wall > 1_700_000_000_000, "milliseconds since 1970");
    assert_eq!(distinct, 1000);
}

#[test]
fn a_shard_on_a_cpu_that_does_not_exist_is_an_error_and_not_a_crash() {
    let options = RuntimeOptions {
        cpus: vec![100_000],
        ..support::options(1)
    };
    let Err(error) = Runtime::start(&options, vec![()], |_, ()| async {}) else {
        panic!("there are not that many CPUs");
    };
    assert!(error.to_string().contains("CPU 100000"), "{error}");
}

/// Trap D4: a cancelled task leaks. There is no way to cancel one of ours: it runs to its end although nobody waits for it.
#[test]
fn d4_a_spawned_task_cannot_be_cancelled() {
    let ended = support::on_one_shard(|env| async move {
        let ended = Arc::new(AtomicBool::new(false));
        let (flag, inner) = (ended.clone(), env.clone());
        env.spawn(async move {
            inner.sleep(Duration::from_millis(10)).await;
            flag.store(true, Ordering::SeqCst);
        });
        env.sleep(Duration::from_millis(50)).await;
        ended.load(Ordering::SeqCst)
    });
    assert!(ended);
}

fn spin(duration: Duration) {
    let began = Instant::now();
    while began.elapsed() < duration {
        std::hint::spin_loop();
    }
}
