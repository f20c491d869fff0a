import BluezKitGLib
import CGtk
import Foundation
import SimulatedSensors

func fail(_ sentence: String, status: Int32 = 1) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("gtk-heart-rate: \(sentence)\n".utf8))
    exit(status)
}

let arguments: Arguments
do { arguments = try Arguments(CommandLine.arguments.dropFirst()) } catch { fail(error.sentence, status: 2) }
if arguments.showsHelp {
    print(Arguments.help)
    exit(0)
}
guard gtk_init_check() != 0 else { fail("there is no display; start it in a graphical session") }

// Before the window, as the app needs the address of the bus. Without `await`: in an asynchronous main program
// everything that follows would be work of the main queue, which is serial, and no callback could be made in it.
var simulation: SimulatedSensors?
if arguments.isSimulated {
    do { simulation = try SimulatedSensors.start() } catch { fail("the simulated sensors do not start: \(error)") }
}
// From here on GLib's main loop runs the main queue, on which the callbacks are.
do { try GLibMainLoop.attach() } catch { fail("\(error)") }

let monitor = HeartMonitor()
monitor.choosesFirst = arguments.connects
var window: MainWindow?

guard let application = gtk_application_new("org.bluezkit.HeartRate", G_APPLICATION_DEFAULT_FLAGS) else { exit(1) }
connect(application, "activate") {
    if let window { return window.present() }
    if arguments.isDark { gtk_shim_prefer_dark(1) }
    gtk_shim_use_style(MainWindow.style)
    let new = MainWindow(monitor, in: application)
    if arguments.reports { new.report = { try? FileHandle.standardOutput.write(contentsOf: Data(($0 + "\n").utf8)) } }
    window = new
    monitor.start(busAddress: simulation?.busAddress)
}
let status = g_application_run(UnsafeMutableRawPointer(application).assumingMemoryBound(to: GApplication.self), 0, nil)
// The window was closed: nothing is to be restored, and the link ends with its last user.
monitor.end()
exit(status)
