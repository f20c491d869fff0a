// bluezkit-bench: an app as BluezKit's users write them, which measures itself.
//
// Callbacks come on a queue of its own, with `main` on the main queue: of any thread (`dispatchMain()`), with `runloop`
// or `glib` run by such a main loop on the main thread. With `context` they come in a GMainContext.
// The bus is that of DBUS_SYSTEM_BUS_ADDRESS. Prints one line of JSON; what each field means says Benchmarks/README.md.
import BluezKit
import BluezKitGLib
import CBluezGLib
import Foundation

let usage = """
    usage: bluezkit-bench MODE [OPTION...] [main [runloop | glib] | context]
      start                    until Bluetooth is on
      notify COUNT             options: sockets; restore: with a restore identifier; keeper: and with a keeper; go: ask for
                               the values by a write;
                               latency: how late each comes; managers=N; subscriptions=N
      idle                     subscribe, say so, and stay; options as for notify
      scan [duplicates]
      write COUNT SIZE         without response
      write-value COUNT SIZE   with response
      channel-send BYTES, channel-receive BYTES
    """
let arguments = Array(CommandLine.arguments.dropFirst())
let numbers = arguments.compactMap { Int($0) }
let queue = arguments.contains("main") ? nil : DispatchQueue(label: "bluezkit-bench")

func setting(_ name: String) -> Int {
    arguments.first { $0.hasPrefix(name + "=") }.flatMap { Int($0.dropFirst(name.count + 1)) } ?? 1
}

func notifyApps(count: Int?) -> [App] {
    let (managers, progress) = (setting("managers"), NotifyApp.Progress())
    return (0..<managers).map { _ in
        NotifyApp(
            count: count, subscriptions: setting("subscriptions"), managers: managers,
            asksForValues: arguments.contains("go"), measuresLatency: arguments.contains("latency"),
            progress: progress, queue: queue)
    }
}

func makeApps() -> [App] {
    switch (arguments.first, numbers.count) {
    case ("start", 0): [StartApp(queue: queue)]
    case ("notify", 1): notifyApps(count: numbers[0])
    case ("idle", 0): notifyApps(count: nil)
    case ("scan", 0): [ScanApp(duplicates: arguments.contains("duplicates"), queue: queue)]
    case ("write", 2): [WriteApp(count: numbers[0], size: numbers[1], type: .withoutResponse, queue: queue)]
    case ("write-value", 2): [WriteApp(count: numbers[0], size: numbers[1], type: .withResponse, queue: queue)]
    case ("channel-send", 1): [ChannelApp(sends: true, bytes: numbers[0], queue: queue)]
    case ("channel-receive", 1): [ChannelApp(sends: false, bytes: numbers[0], queue: queue)]
    default: fail(usage)
    }
}

let apps = makeApps()
var options: [String: Any] = [BluezManagerOptionNotificationSocketsKey: arguments.contains("sockets")]
if arguments.contains("restore") { options[CBCentralManagerOptionRestoreIdentifierKey] = "bluezkit-bench" }
if arguments.contains("keeper") { options[BluezManagerOptionKeeperKey] = BluezRelaunch.never }
for app in apps { app.start(inContext: arguments.contains("context"), options: options) }
if arguments.contains("runloop") { RunLoop.main.run() }
if arguments.contains("glib") || arguments.contains("context") {
    if arguments.contains("glib") { try GLibMainLoop.attach() }
    g_main_loop_run(g_main_loop_new(nil, 0))
}
dispatchMain()
