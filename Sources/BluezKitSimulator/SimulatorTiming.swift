/// The duration of events in the simulator: the timers of bluetoothd and the kernel, and the radio.
///
/// Start from ``fast`` or ``real`` and change what a test needs.
public struct SimulatorTiming: Sendable {
    /// How long a device that was only discovered, or has lost its link unbonded, is kept. 30 s.
    public var temporaryTimeout: Duration
    /// From `Device1.Disconnect` until the link is ended. 2 s.
    public var disconnectDelay: Duration
    /// How long a `Connect` to an absent peripheral lasts. 40 s. The time in which a link is being made does not count.
    public var connectTimeout: Duration
    /// From a connectable peripheral being in range until the link is up.
    public var linkSetup: Duration
    /// From the link being up to ServicesResolved, if the services are not cached.
    public var serviceDiscovery: Duration
    /// The same if they are cached.
    public var serviceRediscovery: Duration
    /// One request to the peripheral and its answer.
    public var attRoundTrip: Duration
    /// How long a peripheral may take to answer before the link is ended. 30 s.
    public var attTimeout: Duration
    /// From a peripheral going out of range until its links are lost. 0.42 s.
    public var supervisionTimeout: Duration
    /// How often the controller forgets what it has reported. 10 s.
    public var scanCycle: Duration
    /// From a change of the filter until the scan has begun again; it cannot be ended in between. 30 ms.
    public var scanRestart: Duration
    /// The interval between two advertisements of a peripheral that does not set its own.
    public var advertisingInterval: Duration
    /// From a Service Changed indication to the signals.
    public var serviceChanged: Duration
    /// From bluetoothd's start to its name, its adapters, and each plugged adapter being powered.
    public var adapterStart: Duration
    /// From a pairing that failed without an agent to the device's removal. 30 s.
    public var failedPairingRemoval: Duration
    /// How long an application may take to answer bluetoothd about one of its attributes. 5 s.
    public var applicationTimeout: Duration
    /// Factor for durations in control lines and built-in peripherals, such as the sink's slow read of 5 s.
    public var scale: Double

    /// For tests: all times in milliseconds, except for those that a slow machine must not exceed.
    public static let fast = SimulatorTiming(
        temporaryTimeout: .seconds(8), disconnectDelay: .milliseconds(20), connectTimeout: .milliseconds(400),
        linkSetup: .milliseconds(2), serviceDiscovery: .milliseconds(3), serviceRediscovery: .milliseconds(1),
        attRoundTrip: .zero, attTimeout: .seconds(1), supervisionTimeout: .milliseconds(5),
        scanCycle: .milliseconds(100), scanRestart: .milliseconds(2), advertisingInterval: .milliseconds(10),
        serviceChanged: .milliseconds(1),
        adapterStart: .milliseconds(2), failedPairingRemoval: .seconds(1), applicationTimeout: .seconds(2),
        scale: 0.01)

    /// As measured with bluetoothd 5.66.
    public static let real = SimulatorTiming(
        temporaryTimeout: .seconds(30), disconnectDelay: .seconds(2), connectTimeout: .milliseconds(40_500),
        linkSetup: .milliseconds(150), serviceDiscovery: .milliseconds(300), serviceRediscovery: .milliseconds(100),
        attRoundTrip: .milliseconds(30), attTimeout: .seconds(30), supervisionTimeout: .milliseconds(420),
        scanCycle: .seconds(10), scanRestart: .milliseconds(30), advertisingInterval: .milliseconds(100),
        serviceChanged: .milliseconds(60),
        adapterStart: .milliseconds(50), failedPairingRemoval: .seconds(30), applicationTimeout: .seconds(5),
        scale: 1)
}
