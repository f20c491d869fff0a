import Foundation
import SimulatedSensors

// simulated-sensors: prints the address of its bus, then carries out lines from its standard input, such as
// `strap vanish`, and answers each with one line.
func say(_ line: String) { try? FileHandle.standardOutput.write(contentsOf: Data((line + "\n").utf8)) }
let sensors: SimulatedSensors
do { sensors = try await SimulatedSensors() } catch {
    try? FileHandle.standardError.write(contentsOf: Data("simulated-sensors: \(error)\n".utf8))
    exit(1)
}
say(sensors.busAddress)
while let line = readLine() { say(sensors.control(line) ? "ok" : "error: unknown line: \(line)") }
