import Foundation
import SimulatedSensors

// simulated-sensors: prints the address of its bus, then carries out the simulator's control lines from its standard
// input, and answers each with one line.
func say(_ line: String) { try? FileHandle.standardOutput.write(contentsOf: Data((line + "\n").utf8)) }
let sensors: SimulatedSensors
do { sensors = try await SimulatedSensors() } catch {
    try? FileHandle.standardError.write(contentsOf: Data("simulated-sensors: \(error)\n".utf8))
    exit(1)
}
say(sensors.busAddress)
while let line = readLine() {
    do { say("ok \(try await sensors.control(line))") } catch { say("error: \(error)") }
}
