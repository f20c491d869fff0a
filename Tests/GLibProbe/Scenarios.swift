import BluezKit
import BluezKitGLib
import CBluezGLib
import Foundation

/// What several closures share.
final class Box<Value>: @unchecked Sendable {  // holds: only one thread uses it
    var value: Value
    init(_ value: Value) { self.value = value }
}

/// What must not be kept alive.
struct Weak { weak var manager: CBCentralManager? }

@discardableResult
func timer(in seconds: Double, repeats: Bool = false, _ body: @escaping (Timer) -> Void) -> Timer {
    let body = Box(body)
    return Timer.scheduledTimer(withTimeInterval: seconds, repeats: repeats) { body.value($0) }
}

/// From the state to a number of values, and what GLib and the main queue have on their way meanwhile.
func scan() {
    attach()
    let (app, loop) = (App(), Loop())
    var order: [String] = []
    app.onCallback = { callback in
        if callback != "value" { tell(callback) }
        if callback == "subscribed" {
            // In order: both kinds of events that this thread makes now.
            for step in 0..<3 {
                whenIdle {
                    order.append("glib\(step)")
                    return false
                }
                DispatchQueue.main.async { order.append("queue\(step)") }
            }
        }
        if app.values.count == number, order.count == 6 { loop.quit() }
    }
    app.start()
    loop.run()
    tell("order", order.filter { $0.hasPrefix("glib") }, order.filter { $0.hasPrefix("queue") })
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
}

/// The default context without a loop.
func byHand() {
    attach()
    let app = App()
    app.onCallback = { if $0 != "value" { tell($0) } }
    app.start()
    while app.values.count < number { g_main_context_iteration(nil, 1) }
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
}

/// GLib's loop in work of the main queue, as in an asynchronous main program: callbacks come when that work has ended.
func within(_ start: (@escaping @Sendable () -> Void) -> Void) {
    BluezKitLog.handler = { level, text in tell("log", level, text) }
    attach()
    let app = App(isRightPlace: { Thread.isMainThread })
    let hasEnded = Box(false)
    app.onCallback = { callback in
        guard hasEnded.value else { fail("\(callback) in work of the main queue") }
        tell(callback)
        tell("done")
        exit(0)
    }
    start {
        let used = processorTime
        app.start()
        let hasFired = Box(false)
        timer(in: 0.01) { _ in
            hasFired.value = true
            tell("timer")
        }
        Loop().run(milliseconds: 500)
        guard processorTime - used < 0.35 else { fail("the loop spins") }
        while !hasFired.value { Loop().run(milliseconds: 100) }
        hasEnded.value = true
    }
    RunLoop.main.run()
}

/// Timers of the main run loop, and everything else that is on the main queue.
func timers() {
    attach()
    let loop = Loop()
    let left = Box<Set>(["repeating", "common", "once", "queue", "after", "task", "other thread", "moved"])
    let quit = Box { loop.quit() }
    let note: @Sendable (String) -> Void = { name in
        guard Thread.isMainThread, isInGLib else { fail("\(name) in the wrong place") }
        guard left.value.remove(name) != nil else { return }
        tell(name)
        if left.value.isEmpty { quit.value() }
    }
    var count = 0
    let start = Date()
    // Set while GLib's loop runs and would otherwise sleep forever.
    after(10) {
        timer(in: 0.02, repeats: true) { timer in
            count += 1
            guard count == 5 else { return }
            timer.invalidate()
            // Not early; and not long after, were it not for other work of this computer.
            guard Date().timeIntervalSince(start) >= 0.1 else { fail("a timer was early") }
            note("repeating")
        }
        RunLoop.main.add(Timer(timeInterval: 0.05, repeats: false) { _ in note("common") }, forMode: .common)
        timer(in: 0) { _ in note("once") }
        let moved = timer(in: 3600) { _ in note("moved") }
        after(10) { moved.fireDate = Date(timeIntervalSinceNow: 0.03) }
        DispatchQueue.main.async { note("queue") }
        DispatchQueue.main.asyncAfter(deadline: .now() + 0.05) { note("after") }
        Task { @MainActor in
            try? await Task.sleep(nanoseconds: 10_000_000)
            note("task")
        }
    }
    Thread.detachNewThread {
        Thread.sleep(forTimeInterval: 0.2)
        RunLoop.main.add(Timer(timeInterval: 0.01, repeats: false) { _ in note("other thread") }, forMode: .default)
        DispatchQueue.main.async {}
    }
    loop.run()
}

/// Loops within GLib's own events, within timers and within callbacks.
func nested() {
    attach()
    let (app, outer) = (App(), Loop())
    app.start()
    run(outer, until: "state 5", of: app)
    // Within an event of GLib and within a timer callbacks come as always.
    after(0) {
        run(Loop(), until: "subscribed", of: app)
        tell("nested in GLib: subscribed")
        outer.quit()
    }
    outer.run()
    timer(in: 0) { _ in
        run(Loop(), until: "value", of: app)
        tell("nested in a timer: a value")
        outer.quit()
    }
    outer.run()
    // Within a callback: GLib's events and timers, and nothing that is on the main queue.
    var (hasNested, events, ticks, blocks) = (false, 0, 0, 0)
    app.onCallback = { _ in
        guard !hasNested else { return }
        hasNested = true
        let before = app.values.count
        DispatchQueue.main.async { blocks += 1 }
        whenIdle {
            events += 1
            return events < 10
        }
        let ticking = timer(in: 0.01, repeats: true) { _ in ticks += 1 }
        let used = processorTime
        Loop().run(milliseconds: 500)
        guard processorTime - used < 0.35 else { fail("a loop in a callback spins") }
        while events < 10 || ticks <= 10 { Loop().run(milliseconds: 100) }  // a slow machine takes longer
        ticking.invalidate()
        guard app.values.count == before else { fail("a callback within a callback") }
        tell("nested in a callback:", events, "events,", "timers", blocks, "blocks")
    }
    app.onCallback = { [onCallback = app.onCallback] callback in
        onCallback(callback)
        if app.values.count == number { outer.quit() }
    }
    outer.run()
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order", blocks, "blocks")
}

/// A loop that ends, and one that starts later.
func again() {
    attach()
    let app = App()
    app.start()
    for callback in ["state 5", "found", "connected", "subscribed"] {
        run(Loop(), until: callback, of: app)
        tell(callback)
        guard g_main_depth() == 0 else { fail("the loop has not ended") }
        attach()  // has no effect
    }
    while app.values.count < number { run(Loop(), until: "value", of: app) }
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
}

/// What has a higher priority comes first.
func priority() {
    for (own, other) in [(Int32(200), Int32(100)), (-100, 0)] {
        attach(priority: own)
        let loop = Loop()
        var order: [String] = []
        for step in 0..<3 {
            whenIdle(priority: other) {
                order.append("glib\(step)")
                return false
            }
            DispatchQueue.main.async { order.append("queue\(step)") }
        }
        timer(in: 0) { _ in order.append("timer") }
        while order.count < 7 { loop.run(milliseconds: 100) }
        tell("priority", own, order.prefix(3).map { $0.prefix(4) }, order.count)
    }
    // Of a context of a manager's own.
    let order = [Int32(200), -100].map { own in
        let (context, app) = (g_main_context_new(), App(isRightPlace: { true }))
        var order: [String] = []
        app.onCallback = { order.append($0) }
        app.start(on: context, priority: own)
        while g_main_context_pending(context) == 0 { sched_yield() }  // until the state has come
        whenIdle(context) {
            order.append("glib")
            return false
        }
        while order.count < 2 { g_main_context_iteration(context, 1) }
        return order.map { $0.prefix(4) }
    }
    tell("contexts", order)
}

/// The loop does not run for `number` seconds, while values come.
func blocked() {
    attach()
    let (app, loop) = (App(), Loop())
    app.start()
    run(loop, until: "subscribed", of: app)
    tell("subscribed")
    run(loop, until: "value", of: app)
    sleep(number)
    tell("blocked", app.values.count)
    app.onCallback = { _ in if app.values.count == 1000 { loop.quit() } }
    loop.run()
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
}

/// A manager that the app releases in a callback, in each kind of them.
func release() {
    attach()
    let loop = Loop()
    for callback in ["state 5", "found", "connected", "subscribed", "value"] {
        for kind in ["queue", "context"] {
            let app = App()
            if kind == "queue" { app.start() } else { app.start(on: nil) }
            let manager = Weak(manager: app.manager)
            app.onCallback = { name in
                if name == "subscribed" { tell(name) }
                guard name == callback else { return }
                (app.manager, app.peripheral) = (nil, nil)
                app.onCallback = { fail("\($0) after the end") }
                loop.quit()
            }
            loop.run()
            loop.run(milliseconds: 200)
            guard manager.manager == nil else { fail("the manager is still there") }
            tell("released in", callback, kind)
        }
    }
}

/// Nothing wakes the program while nothing happens.
func idle() {
    attach()
    let (app, loop) = (App(), Loop())
    app.start()
    run(loop, until: "subscribed", of: app)
    timer(in: 3600) { _ in fail("an hour has passed") }
    loop.run(milliseconds: 3000)  // what follows a connection
    let thread: Int32 = 1  // RUSAGE_THREAD
    let before = (switches(thread), switches(RUSAGE_SELF.rawValue))
    loop.run(milliseconds: 3000)
    tell("wake-ups", switches(thread) - before.0, "of", switches(RUSAGE_SELF.rawValue) - before.1)
}

/// How often who has waited.
private func switches(_ who: Int32) -> Int {
    var usage = rusage()
    getrusage(who, &usage)
    return usage.ru_nvcsw
}

/// A context that another thread runs.
func context() {
    let box = Box(g_main_context_new())
    let ended = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
        let context = box.value
        g_main_context_push_thread_default(context)
        let own = pthread_self()
        let (app, loop) = (App(isRightPlace: { pthread_self() == own && isInGLib }), Loop(context))
        app.start(on: context)
        for callback in ["state 5", "found", "connected"] {
            run(loop, until: callback, of: app)
            tell(callback)
        }
        after(0, context) {
            run(Loop(context), until: "subscribed", of: app)
            tell("nested: subscribed")
            loop.quit()
        }
        loop.run()
        var events = 0
        app.onCallback = { _ in
            if app.values.count == 1 {
                whenIdle(context) {
                    events += 1
                    return events < 10
                }
                while events < 10 { Loop(context).run(milliseconds: 100, context) }
                tell("nested in a callback:", events, "events")
            }
            if app.values.count == number { loop.quit() }
        }
        loop.run()
        tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
        let manager = Weak(manager: app.manager)
        (app.manager, app.peripheral) = (nil, nil)
        loop.run(milliseconds: 100, context)
        guard manager.manager == nil else { fail("the manager is still there") }
        g_main_context_pop_thread_default(context)
        g_main_context_unref(context)
        ended.signal()
    }
    ended.wait()
}

/// A context of its own, run by hand by the main thread, and released with work in it.
func contextByHand() {
    let context = g_main_context_new()
    let app = App()
    app.onCallback = { if $0 != "value" { tell($0) } }
    app.start(on: context)
    while app.values.count < number { g_main_context_iteration(context, 1) }
    tell("values", app.values.count, app.valuesAreComplete ? "in order" : "out of order")
    let manager = Weak(manager: app.manager)
    g_main_context_unref(context)
    (app.manager, app.peripheral) = (nil, nil)
    guard manager.manager == nil else { fail("the manager is still there") }
}

/// The default context is run by another thread than the main one, which the main queue cannot bear.
func wrongThread() {
    BluezKitLog.handler = { level, text in tell("log", level, text) }
    attach()
    DispatchQueue.main.async { fail("the main queue on another thread") }
    let ended = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
        let app = App(isRightPlace: { !Thread.isMainThread && isInGLib })
        app.start(on: nil)
        run(Loop(), until: "subscribed", of: app)
        tell("subscribed")
        ended.signal()
    }
    ended.wait()
}

/// Of this process, in seconds.
var processorTime: Double {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// Contexts that the program makes, gives to a manager and never runs.
func contextUnused() {
    let freed = Protected(UInt32(0))
    for _ in 0..<number {
        guard let context = g_main_context_new() else { fail("no context") }
        whenFreed(context) { freed.withLock { $0 += 1 } }
        let app = App()
        app.start(on: context)
        // Its state waits.
        while g_main_context_pending(context) == 0 { usleep(100) }
        app.manager = nil
        g_main_context_unref(context)
    }
    while freed.withLock({ $0 }) < number { usleep(100) }
    tell("freed", number)
}
