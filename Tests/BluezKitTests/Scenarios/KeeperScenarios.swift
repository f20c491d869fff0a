import BluezDBus
import BluezKitRestore
import Foundation
import Testing

private let hasVersions = ConditionTrait.enabled(if: isDebugBuild, "no program can have another version")
private let beforeTasks: Comment = "a value that waits for a task of CoreBluetoothAsync counts as delivered"

/// What a keeper does for an app that has died.
extension Scenarios {
    @Suite(.serialized, .enabled(if: !isHosted, "it has keepers of its own")) struct KeeperScenarios {
        /// A world, a directory for the state, and a keeper.
        private struct Stage {
            let stage: RestorationScenarios.Stage
            let keeper: KeeperProcess

            init() async throws {
                stage = try await RestorationScenarios.Stage()
                keeper = try await KeeperProcess()
            }

            var world: any World { stage.world }
            private var options: [String] { ["--keeper", keeper.socket] }

            func launch(_ more: [String] = []) throws -> Probe { try stage.launch("app", options + more) }
            func launchFresh() async throws -> Probe { try await stage.launchFresh("app", options) }
            func launchBeating() async throws -> Probe { try await stage.launchBeating("app", options) }

            /// An app that is subscribed to the sink's counter.
            func launchCounting() async throws -> Probe {
                let probe = try await launchFresh()
                try await stage.connect(probe, sink)
                probe.send("discover \(sink) \(service)")
                try await probe.next("services")
                probe.send("characteristics \(sink) \(service)")
                try await probe.next("characteristics")
                probe.send("subscribe \(sink) \(counter)")
                try await probe.next("notifying \(counter) true")
                return probe
            }

            /// Gets an x each time that the keeper starts the app.
            var starts: String { stage.directory.path + "/starts" }

            /// An app that the keeper is to start has been killed while it was subscribed.
            func leaveDead() async throws {
                let probe = try await stage.launchFresh("app", options + ["--started", starts])
                try await stage.beginBeating(probe)
                try await probe.kill()
            }

            /// The app ends its link, for the tests that follow.
            func end(_ probe: Probe, _ identifier: String, _ name: String) async throws {
                probe.send("cancel \(identifier)")
                try await world.awaitConnections(name, 0)
            }
        }

        private static let heart = RestorationScenarios.heart, sink = RestorationScenarios.sink
        private static let service = "BB1E0001-5D3B-4C6F-9A5E-000000000000"
        private static let counter = "BB1E0013-5D3B-4C6F-9A5E-000000000000"
        private var heart: String { Self.heart }

        private func measurement(_ number: Int) -> String { "06" + String(number, radix: 16) }

        private func awaitValue(_ stage: Stage, _ probe: Probe) async throws {
            try await eventually("a value comes") {
                _ = try await stage.world.control("heart notify 2a37 \(measurement(80))")
                return probe.all.contains { $0.hasPrefix("value 2A37 \(measurement(80))") }
            }
        }

        // Slow: in the rig, two processes of an app start, and it connects and subscribes.
        @Test(
            "RS-15 R-9 killed while values come: the next process gets what it has missed, in order, each once")
        func values() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchBeating()
            probe.send("room \(heart)")
            let room = Probe.isAsync ? nil : try await probe.next("room")
            try await probe.kill()
            for number in 80..<100 { try await stage.world.control("heart notify 2a37 \(measurement(number))") }
            #expect(try await stage.world.control("heart connections") == "1")
            // What the app says directly after the manager is made comes to the keeper before that has answered.
            let again = try stage.launch(["--pair"])
            #expect(try await again.next("restored").contains(heart))
            // Sequences of CoreBluetoothAsync have no order among each other.
            if !Probe.isAsync { try await again.next("state poweredOn") }
            for number in 80..<100 { try await again.next("value 2A37 \(measurement(number))") }
            try await stage.world.control("heart notify 2a37 0651")
            try await again.next("value 2A37 0651")
            if let room {
                again.send("room \(heart)")
                #expect(try await again.next("room") == room, "the ATT_MTU is that of the link")
            }
            // The callback of the last value that the first process has heard may have been running.
            let values = again.all.filter { $0.hasPrefix("value 2A37") && !$0.hasPrefix("value 2A37 0646") }
            #expect(values.count == 21)
            try await stage.end(again, heart, "heart")
        }

        // Slow: six processes of an app, which hear 400 values.
        @Test(
            "RS-15 killed again and again while numbered values come: each number once, but for the callback that ran",
            Probe.onlyCallbacks(beforeTasks))
        func numbers() async throws {
            // scripts/keeper-kills asks for more kills, and for a rate.
            let rounds = Worlds.kills ?? 5
            let rate = ProcessInfo.processInfo.environment["BLUEZKIT_KILL_RATE"].flatMap { Int($0) }
            let count = rate.map { max(10, $0 / 2) } ?? 80
            let stage = try await Stage()
            var probe = try await stage.launchCounting()
            let world = stage.world
            var runs: [[Int]] = []
            for first in stride(from: 0, to: rounds * count, by: count) {
                async let sent: Void = send(first..<first + count, rate, in: world)
                let last = first + Int.random(in: 0..<count - 1)
                try await eventually("\(last) came, after \(runs.suffix(2))") { [probe] in
                    (numbers(of: probe).last ?? 0) >= last
                }
                try await probe.kill()
                runs.append(numbers(of: probe))
                probe = try stage.launch()
                try await sent
            }
            let last = rounds * count - 1
            // On a slow machine a process may hear all that there is before it is killed.
            try await eventually("\(last) came, after \(runs.suffix(2))") { [probe] in
                (numbers(of: probe).last ?? runs.last?.last) == last
            }
            runs.append(numbers(of: probe))
            try await probe.next("state poweredOn")
            var (all, repeated): ([Int], Int) = ([], 0)
            for run in runs {
                let isRepeated = run.first != nil && run.first == all.last
                all += isRepeated ? Array(run.dropFirst()) : run
                repeated += isRepeated ? 1 : 0
            }
            #expect(all == Array(0...last), "\(runs)")
            if rate != nil { print("\(rounds) kills, \(all.count) values, \(repeated) of them twice") }
            try await stage.end(probe, Self.sink, "sink")
        }

        /// The sink sends these, each in four bytes, the lowest first.
        /// - Parameter rate: A second; nil: as fast as it can.
        private func send(_ numbers: Range<Int>, _ rate: Int?, in world: any World) async throws {
            let clock = ContinuousClock()
            let start = clock.now
            for number in numbers {
                if let rate {
                    try await clock.sleep(until: start + .seconds(Double(number - numbers.lowerBound) / Double(rate)))
                }
                let text = String(UInt32(number).byteSwapped, radix: 16)
                try await world.control("sink notify 0013 \(String(repeating: "0", count: 8 - text.count))\(text)")
            }
        }

        /// The numbers of the values that came, in order.
        private func numbers(of probe: Probe) -> [Int] {
            probe.all.compactMap { line in
                guard line.hasPrefix("value \(Self.counter) "), let text = line.split(separator: " ").dropFirst(2).first
                else { return nil }
                // Four bytes, the lowest first.
                let bytes = stride(from: 0, to: 8, by: 2).map { offset in
                    Int(text.dropFirst(offset).prefix(2), radix: 16) ?? 0
                }
                return bytes.reversed().reduce(0) { $0 << 8 | $1 }
            }
        }

        // Slow: in the rig, an app starts, connects and subscribes.
        @Test("RS-5 RS-8 R-7 a pending connect completes while the app is dead: the next process hears of it, once")
        func connects() async throws {
            let stage = try await Stage()
            try await stage.world.control("heart vanish")
            let probe = try await stage.launchFresh()
            probe.send("scan all")
            probe.send("connect \(heart)")
            try await probe.next("end connect")
            try await probe.kill()
            try await stage.world.control("heart return")
            try await stage.world.awaitConnections("heart", 1)
            let again = try stage.launch()
            try await again.next("restored", heart)
            try await again.next("state poweredOn")
            try await again.next("connected \(heart)")
            try await stage.end(again, heart, "heart")
            #expect(again.all.filter { $0.hasPrefix("connected \(heart)") }.count == 1)
        }

        @Test("RS-5 R-12 a link ends while the app is dead: the next process hears of it, once")
        func loses() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchBeating()
            try await probe.kill()
            try await stage.world.control("heart vanish")
            try await stage.world.awaitConnections("heart", 0)
            let again = try stage.launch()
            try await again.next("restored", heart)
            try await again.next("state poweredOn")
            try await again.next("disconnected \(heart)")
            try await stage.world.control("heart return")
            #expect(again.all.filter { $0.hasPrefix("disconnected") }.count == 1)
        }

        // Slow: in the rig, a device vanishes and returns for each process of the app.
        @Test(
            "RS-15 R-12 killed again and again while a link ends and is back: each end and connect once, in order",
            Probe.onlyCallbacks(beforeTasks))
        func linksComeAndGo() async throws {
            let stage = try await Stage()
            var probe = try await stage.launchFresh()
            try await stage.stage.connect(probe, heart, "reconnect")
            let world = stage.world
            try await world.letBlueZDiscover(.heart)
            let steps: [() async throws -> Void] = [
                { _ = try await world.control("heart vanish") }, { try await world.awaitConnections("heart", 0) },
                { _ = try await world.control("heart return") },
                {
                    try await world.awaitConnections("heart", 1)
                    try await world.letBlueZDiscover(.heart)
                },
            ]
            var (heard, told): ([String], [String]) = ([], [])
            var repeated = 0
            /// What `probe` adds to what was heard, and whether the callback that ran was called again.
            func news(_ probe: Probe) -> (events: ArraySlice<String>, isRepeated: Bool) {
                let events = probe.callbacks.filter { ["connected", "disconnected"].contains($0) }
                let isRepeated = events.first != nil && events.first == heard.last
                return (events.dropFirst(isRepeated ? 1 : 0), isRepeated)
            }
            func collect(_ probe: Probe) {
                let (events, isRepeated) = news(probe)
                heard += events
                told.append("hears \(events)")
                if isRepeated { repeated += 1 }
            }
            let rounds = Worlds.kills ?? 3
            for round in 1...rounds {
                let (death, absence) = (Int.random(in: 0..<4), Int.random(in: 0..<3))
                for (number, step) in steps.enumerated() {
                    if number == death {
                        try await probe.kill()
                        collect(probe)
                        told.append("dies in step \(death), for \(absence)")
                    }
                    try await step()
                    if number == min(death + absence, 3) { probe = try stage.launch() }
                }
                try await probe.next("state poweredOn")
                // The device may have a link, and lose it again, before BlueZ has told of either.
                try await eventually("all is heard, of round \(round); \(told.suffix(4))") { [probe] in
                    heard.count + news(probe).events.count > 2 * round
                }
            }
            let expected = ["connected"] + (0..<rounds).flatMap { _ in ["disconnected", "connected"] }
            collect(probe)
            #expect(heard == expected, "\(told)")
            if Worlds.kills != nil { print("\(rounds) kills, \(heard.count) events, \(repeated) of them twice") }
            try await stage.end(probe, heart, "heart")
        }

        // Slow: in the rig, a device vanishes and returns for each process of the app.
        @Test("RS-8 R-7 killed again and again with a scan and a pending connect: both go on, and it completes once")
        func connectsAgain() async throws {
            let stage = try await Stage()
            var probe = try await stage.launchFresh()
            probe.send("scan all")
            try await probe.next("discovered \(heart)")
            for round in 0..<(Worlds.kills ?? 2) {
                try await stage.world.control("heart vanish")
                probe.send("connect \(heart)")
                try await probe.next("end connect")
                let isBack = Bool.random()
                if isBack { try await stage.world.control("heart return") }
                try await probe.kill()
                if !isBack { try await stage.world.control("heart return") }
                let before = probe.callbacks.count { $0 == "connected" }
                probe = try stage.launch()
                try await probe.next("restored", heart)
                try await probe.next("state poweredOn", "scanning=true")
                try await eventually("it is connected, in round \(round)") { [probe] in
                    try await probe.now().contains("\(heart):connected")
                }
                #expect(probe.callbacks.count { $0 == "connected" } + before <= 2)
                try await stage.world.letBlueZDiscover(.heart)
                try await stage.end(probe, heart, "heart")
                try await probe.next("disconnected \(heart)")
            }
        }

        // Connects and ends of links are never dropped one by one.
        // Slow: in the rig, a link ends and is made again many times.
        @Test("RS-15 a link ends and is back without an end while the app is dead: that does not fill the keeper")
        func flaps() async throws {
            let stage = try await Stage()
            let probe = try await stage.stage.launchFresh(
                "app", ["--keeper", stage.keeper.socket, "--kept-events", "3"])
            probe.send("scan all")
            try await probe.next("discovered \(heart)")
            probe.send("stopscan")
            probe.send("connect \(heart) reconnect")
            try await probe.next("connected \(heart)")
            try await probe.kill()
            for _ in 0..<6 {
                try await stage.world.letBlueZDiscover(.heart)
                try await stage.world.control("heart vanish")
                try await stage.world.awaitConnections("heart", 0)
                try await stage.world.control("heart return")
                try await stage.world.awaitConnections("heart", 1)
            }
            let again = try stage.launch()
            try await again.next("restored", heart)
            try await again.next("state poweredOn")
            try await eventually("it is connected") { try await again.now().contains("\(heart):connected") }
            // As without a keeper, it may hear that the link is another one.
            #expect(again.callbacks.count { $0 == "disconnected" } <= 1)
            try await stage.end(again, heart, "heart")
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "CN-7 an app cancels and exits in the next line: the link ends, although a keeper continues",
            arguments: 0..<3)
        func cancelsAndExits(_ round: Int) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchBeating()
            // Values that the keeper cannot pass on any more do not keep it from reading what the app has asked for.
            try await stage.world.control("heart beat 100")
            probe.send("cancel \(heart)\nquit")
            try await probe.waitForEnd()  // before that it has the file
            try await stage.world.awaitConnections("heart", 0)
            let again = try stage.launch()
            try await again.next("state poweredOn")
            #expect(!again.all.contains { $0.hasPrefix("restored") })
            // It can be connected again, although this process counts its connects from the beginning.
            try await stage.stage.connect(again, heart)
            try await stage.end(again, heart, "heart")
        }

        // Slow: in the rig, four processes of an app start, and two of them connect.
        @Test("R-15 RS-6 of two managers one is not created again: the keeper ends what it did after the claim period")
        func unclaimed() async throws {
            let stage = try await Stage()
            let other = try stage.stage.launch("B", ["--keeper", stage.keeper.socket])
            try await other.next("state poweredOn")
            try await stage.stage.connect(other, heart)
            let mine = try stage.launch(["--claim", "0.2"])
            try await mine.next("state poweredOn")
            try await stage.stage.connect(mine, Self.sink)
            try await other.kill()
            try await mine.kill()
            let again = try stage.launch(["--claim", "0.2"])
            try await again.next("restored", "\(Self.sink):connected")
            try await stage.world.awaitConnections("heart", 0)
            #expect(try await stage.world.control("sink connections") == "1")
            // Claimed after all: a pending connect.
            let late = try stage.stage.launch("B", ["--keeper", stage.keeper.socket])
            try await late.next("restored", Probe.isAsync ? "\(heart):connect" : "\(heart):connecting")
            try await late.next("connected \(heart)")
            try await stage.end(late, heart, "heart")
            try await stage.end(again, Self.sink, "sink")
        }

        // Slow: in the rig, BlueZ ends the link two to three seconds after it was asked to.
        @Test("RS-16 a manager that is released is kept no longer")
        func releases() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchBeating()
            probe.send("releasemanager")
            try await stage.world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, an app starts, connects and subscribes.
        @Test(
            "D10 the keeper is killed: the app hears what a restart of bluetoothd tells it, and continues with another",
            Probe.onlyCallbacks(endsWithReset))
        func keeperDies() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchBeating()
            stage.keeper.kill()
            try await probe.next("state resetting")
            try await probe.next("state poweredOn")
            try await probe.next("connected \(heart)")
            try await stage.end(probe, heart, "heart")
        }

        // Slow: in the rig, an app starts, connects and subscribes.
        @Test("D10 RS-15 the keeper is killed while the app is dead: the next keeper continues, and starts the app")
        func bothDie() async throws {
            let stage = try await Stage()
            try await stage.leaveDead()
            try await stage.keeper.restart()
            try await eventually("the app is started") { access(stage.starts, F_OK) == 0 }
            let again = try stage.launch()
            #expect(try await again.next("restored").contains(heart))
            try await again.next("state poweredOn")
            // The next keeper may still be subscribing.
            try await awaitValue(stage, again)
            try await stage.end(again, heart, "heart")
        }

        // Slow: in the rig, two programs and a second keeper start.
        @Test(
            "D10 an app with a newer keeper replaces the one that runs, which continues for the others",
            hasVersions)
        func replacedByNewer() async throws {
            let stage = try await Stage()
            try await stage.leaveDead()
            let newer = ["--border-version", "2"]
            let other = try stage.stage.launch("other", ["--keeper", stage.keeper.socket] + newer)
            try await other.next("state poweredOn")
            try await eventually("the newer keeper starts the dead app") { access(stage.starts, F_OK) == 0 }
            #expect(other.all.filter { $0.contains("keeper") } == [], "the log has nothing to say")
            let again = try stage.launch(newer)
            #expect(try await again.next("restored").contains(heart))
            try await awaitValue(stage, again)
            try await stage.end(again, heart, "heart")
        }

        // Slow: in the rig, two programs start.
        @Test(
            "an app that is older than the keeper which runs does without it, and the log says why",
            hasVersions)
        func newerKeeper() async throws {
            let stage = try await Stage()
            let newer = try stage.stage.launch(
                "newer", ["--keeper", stage.keeper.socket, "--border-version", "2"])
            try await newer.next("state poweredOn")
            let probe = try await stage.launchBeating()
            #expect(probe.all.contains { $0.contains("the one that runs has version 2, and this program 1") })
            #expect(!newer.all.contains { $0.contains("state resetting") }, "and its keeper is still there")
            try await stage.end(probe, heart, "heart")
        }

        // Slow: an app waits 5 s for the keeper before the rest of it begins.
        @Test("RS-15 a keeper that does not answer for seconds is waited for: nothing is lost, and nothing started")
        func hangs() async throws {
            let stage = try await Stage()
            let probe = try await stage.stage.launchFresh(
                "app", ["--keeper", stage.keeper.socket, "--started", stage.starts])
            try await stage.stage.beginBeating(probe)
            stage.keeper.pause()
            try await probe.kill()
            for number in 80..<84 { try await stage.world.control("heart notify 2a37 \(measurement(number))") }
            let again = try stage.launch(["--started", stage.starts])
            _ = try await again.now()
            #expect(!again.all.contains { $0.hasPrefix("restored") || $0.hasPrefix("state poweredOn") })
            stage.keeper.resume()
            #expect(try await again.next("restored").contains(heart))
            for number in 80..<84 { try await again.next("value 2A37 \(measurement(number))") }
            #expect(access(stage.starts, F_OK) != 0)
            try await stage.end(again, heart, "heart")
        }

        // Slow: in the rig, an app starts, connects and subscribes.
        @Test("without a keeper that can be started the manager restores on its own, and the log says why")
        func noKeeper() async throws {
            let stage = try await RestorationScenarios.Stage()
            let probe = try await stage.launchBeating("app", ["--keeper", "/proc/nowhere/keeper"])
            #expect(probe.all.contains { $0.contains("there is no keeper") })
            try await probe.kill()
            let again = try stage.launch("app", ["--keeper", "/proc/nowhere/keeper"])
            #expect(try await again.next("restored").contains(heart))
            again.send("cancel \(heart)")
            try await stage.world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, an app starts, connects and subscribes.
        @Test(
            "RS-5 the keeper starts the app for a value, once for all that come until it is there")
        func relaunches() async throws {
            let stage = try await Stage()
            try await stage.leaveDead()
            // Perhaps for the last value already, if its callback had not returned: that counts as well.
            for number in 80..<90 { try await stage.world.control("heart notify 2a37 \(measurement(number))") }
            try await eventually("the app is started") {
                (try? String(contentsOfFile: stage.starts, encoding: .utf8)) == "x"
            }
            let again = try stage.launch()
            for number in 80..<90 { try await again.next("value 2A37 \(measurement(number))") }
            #expect(try String(contentsOfFile: stage.starts, encoding: .utf8) == "x")
            try await stage.end(again, heart, "heart")
        }
    }
}
