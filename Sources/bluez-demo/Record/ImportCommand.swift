import BluezKitSimulator
import Dispatch
import Foundation

/// Makes a recording of what people have already: a btsnoop capture, and what BlueZ stores about a device.
final class ImportCommand: Command {
    /// Devices that are listed when one has to be chosen.
    private static let mostListed = 40

    private let options: RecordOptions
    private let output: Output

    init(_ options: RecordOptions, output: Output) throws(CardFile.Failure) {
        try CardFile.checkWritable(options.output)
        (self.options, self.output) = (options, output)
    }

    /// Ctrl-C is answered on the main queue, and a large capture takes a while.
    func start() {
        let sources = options.sources
        // holds: it is used on the main queue only
        nonisolated(unsafe) let command = self
        DispatchQueue.global().async {
            let devices = Result { () throws(CardFile.Failure) in try Self.read(sources) }
            DispatchQueue.main.async { command.finish(devices) }
        }
    }

    private func finish(_ devices: Result<[RecordingImport.Device], CardFile.Failure>) {
        do throws(CardFile.Failure) {
            if let device = choose(try devices.get()) {
                try save(device)
                Program.quit(.success)
            }
        } catch {
            output.complain(error.message)
        }
        Program.quit(.failure)
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }

    private static func read(_ sources: [String]) throws(CardFile.Failure) -> [RecordingImport.Device] {
        var files: [RecordingImport.File] = []
        for path in sources {
            let content = try RecordingFile.content(of: path, limit: RecordingImport.sizeLimit)
            // A path that says more: the folder of `info` has the address.
            files.append(.init(path: URL(fileURLWithPath: path).path, content: content))
        }
        do throws(RecordingError) {
            return try RecordingImport(files).devices
        } catch {
            throw CardFile.Failure(message: error.description)
        }
    }

    /// The device that was asked for, or the only one that did more than advertise.
    private func choose(_ devices: [RecordingImport.Device]) -> RecordingImport.Device? {
        if let wanted = options.device {
            let addresses = [wanted.description.uppercased()] + wanted.identifiers.compactMap(\.bluetoothAddress)
            if let device = devices.first(where: { addresses.contains($0.recording.address ?? "") }) { return device }
            output.complain("\(wanted) is not in \(options.sources.joined(separator: ", ")); without it all are listed")
            return nil
        }
        let connected = devices.filter(\.isConnected)
        if let device = connected.count == 1 ? connected.first : devices.count == 1 ? devices.first : nil {
            return device
        }
        guard !devices.isEmpty else {
            output.complain("there is no Bluetooth LE device in \(options.sources.joined(separator: ", "))")
            return nil
        }
        for device in devices.prefix(Self.mostListed) {
            output.report(.captured(RecordingSummary(device.recording, path: "")))
            let summary = RecordingSummary(device.recording, path: "")
            output.say(
                Line(summary.address ?? "", .bold) + Line("  " + (summary.name?.harmless ?? "without a name"))
                    + Line("  " + summary.text, .dim))
        }
        if devices.count > Self.mostListed { output.say(Line("... and \(devices.count - Self.mostListed) more", .dim)) }
        output.complain(
            "which of these \(devices.count) devices? Name one by its address: bluez-demo record ADDRESS --from ...")
        return nil
    }

    private func save(_ device: RecordingImport.Device) throws(CardFile.Failure) {
        let recording = options.isAnonymous ? device.recording.anonymized() : device.recording
        try RecordingFile.write(recording, to: options.output)
        let summary = RecordingSummary(recording, path: options.output, unexplained: device.unexplained)
        output.report(.recorded(summary))
        output.say(Line("Recorded ", .green) + Line(summary.text + ", in \(options.output.harmless)."))
        guard device.unexplained > 0 else { return }
        let values = device.unexplained == 1 ? "One value was left out" : "\(device.unexplained) values were left out"
        output.say(
            Line(
                "\(values): the capture does not say what they belong to, because the device was known already. "
                    + "Make it forget the device and capture again, or add BlueZ's cache with another --from.", .yellow)
        )
    }
}
