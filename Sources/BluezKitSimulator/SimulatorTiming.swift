/// How long things take in the simulated world: the timers of bluetoothd and the kernel, and the radio.
///
/// Start from ``fast`` or ``real`` and set what a test is about.
public struct SimulatorTiming: Sendable {
    /// How long a device that was only discovered, or has lost its link unbonded, is kept. 30 s.
    public var temporaryTimeout: Duration
    /// From `Device1.Disconnect` until the link is ended. 2 s.
    public var disconnectDelay: Duration
    /// How long a `Connect` to an absent peripheral lasts. 40 s.
    public var connectTimeout: Duration
    /// From a connectable peripheral being there to the link being up.
    public var linkSetup: Duration
    /// From the link being up to ServicesResolved, where the services are not known yet.
    public var serviceDiscovery: Duration
    /// The same where they are known.
    public var serviceRediscovery: Duration
    /// One request to the peripheral and its answer.
    public var attRoundTrip: Duration
    /// How long a peripheral may take to answer; then the link is ended. 30 s.
    public var attTimeout: Duration
    /// From a peripheral vanishing to its links being lost. 0.42 s.
    public var supervisionTimeout: Duration
    /// The controller forgets in this rhythm what it has reported already. 10 s.
    public var scanCycle: Duration
    /// Between two advertisements of a peripheral that does not say so itself.
    public var advertisingInterval: Duration
    /// From a Service Changed indication to the signals.
    public var serviceChanged: Duration
    /// From bluetoothd's start to its name, its adapters, and each plugged adapter being powered.
    public var adapterStart: Duration
    /// From a pairing that failed without an agent to the device's removal. 30 s.
    public var failedPairingRemoval: Duration
    /// How long an application may take to answer bluetoothd about an attribute of its own. 5 s.
    public var applicationTimeout: Duration
    /// Factor for durations that control lines and built-in peripherals name, such as the sink's slow read of 5 s.
    public var scale: Double

    /// For tests: everything in milliseconds, but for what a slow machine must not miss.
    public static let fast = SimulatorTiming(
        temporaryTimeout: .seconds(8), disconnectDelay: .milliseconds(20), connectTimeout: .milliseconds(400),
        linkSetup: .milliseconds(2), serviceDiscovery: .milliseconds(3), serviceRediscovery: .milliseconds(1),
        attRoundTrip: .zero, attTimeout: .seconds(1), supervisionTimeout: .milliseconds(5),
        scanCycle: .milliseconds(100), advertisingInterval: .milliseconds(10), serviceChanged: .milliseconds(1),
        adapterStart: .milliseconds(2), failedPairingRemoval: .seconds(1), applicationTimeout: .seconds(2),
        scale: 0.01)

    /// As measured with bluetoothd 5.66.
    public static let real = SimulatorTiming(
        temporaryTimeout: .seconds(30), disconnectDelay: .seconds(2), connectTimeout: .milliseconds(40_500),
        linkSetup: .milliseconds(150), serviceDiscovery: .milliseconds(300), serviceRediscovery: .milliseconds(100),
        attRoundTrip: .milliseconds(30), attTimeout: .seconds(30), supervisionTimeout: .milliseconds(420),
        scanCycle: .seconds(10), advertisingInterval: .milliseconds(100), serviceChanged: .milliseconds(60),
        adapterStart: .milliseconds(50), failedPairingRemoval: .seconds(30), applicationTimeout: .seconds(5),
        scale: 1)
}
