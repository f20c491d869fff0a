/// Every time that BluezKit waits, in one place. Tests set shorter ones, before the first manager or for what comes next.
///
/// Deadlines of D-Bus calls are not here: each stands at its call in ``BlueZProxy``, beside what BlueZ does in that time.
struct BlueZTiming: Sendable {
    var daemon = Daemon()
    var adapter = Adapter()
    var scan = Scan()
    var connect = Connect()
    var link = Link()
    var gatt = GATT()
    var pairing = Pairing()
    var server = Server()

    /// bluetoothd, and the connection to the bus.
    struct Daemon: Sendable {
        /// A call that takes longer leads to a `Ping`, and a `Ping` that takes longer to `.resetting`. bluetoothd answers a
        /// `Ping` within milliseconds, unless it is stopped or in an endless loop.
        var patience = Duration.seconds(10)
        /// After a lost connection to the bus, doubled with each failure up to ``longestReconnect``.
        var reconnect = Duration.milliseconds(250)
        var longestReconnect = Duration.seconds(8)
        /// Before a call is repeated that the bus or bluetoothd was too busy for: doubled with each try.
        var busyRetry = Duration.milliseconds(50)
        /// How often such a call is repeated: 6.35 s in all.
        var busyRetries = 7
    }

    struct Adapter: Sendable {
        /// For an adapter, or a daemon, to come back before another adapter is used. A USB controller that is reset is away
        /// for about a second.
        var grace = Duration.seconds(3)
        /// After that, until `.unsupported` is reported for an adapter that was there. A slow machine takes about 10 s to
        /// start bluetoothd, and apps that see `.unsupported` may give up for good.
        var longGrace = Duration.seconds(17)
        /// After bluetoothd was restarted. The kernel ends the links of the previous daemon after 2 s, and until then the
        /// new daemon reports them as connected.
        var staleLinks = Duration.milliseconds(2500)
        /// Before `Powered` is asked for again, where the bus has refused the call.
        var poweredRetry = Duration.milliseconds(100)
    }

    struct Scan: Sendable {
        /// After a refusal of BlueZ, doubled with each up to ``longestRetry``.
        var retry = Duration.milliseconds(200)
        var longestRetry = Duration.seconds(5)
        /// How long a scan may hear nothing. Where there is any Bluetooth device near, something comes every few seconds.
        var silence = Duration.seconds(60)
    }

    /// Which device attempts to connect (``ConnectScheduler``).
    struct Connect: Sendable {
        /// For the waiting devices to be heard, before one is attempted unheard: BlueZ does not report a device whose signal
        /// strength does not change.
        var listening = Duration.seconds(8)
        /// The longest attempt while others wait: of a device that was heard, and of one that was not.
        var heardAttempt = Duration.seconds(10)
        var unheardAttempt = Duration.seconds(4)
        /// How long after its last advertisement a device counts as being in range. A controller that filters duplicates
        /// reports a device once in a scan cycle, about 10 s.
        var inRange = Duration.seconds(12)
        /// The longest part of an attempt during which discovery is paused. A device that is away must not keep the app's
        /// scan from going on.
        var discoveryPause = Duration.seconds(5)
    }

    /// One device's link (``LinkStateMachine``).
    struct Link: Sendable {
        /// After `Connect` has succeeded and `Connected` has not come, before BlueZ is asked: it reports some aborted
        /// attempts as success.
        var settling = Duration.milliseconds(500)
        /// After that, before the attempt counts as failed.
        var settled = Duration.milliseconds(4500)
        /// After the first failure, doubled with each up to ``longestBackOff``. BlueZ's own attempt waits 40 s for the
        /// device, so this matters only where attempts fail immediately.
        var backOff = Duration.milliseconds(250)
        var longestBackOff = Duration.seconds(8)
        /// For `Connected` to become false after `Disconnect` was answered.
        var closing = Duration.seconds(5)
        /// From the unexpected end of a link until it is reported: bluetoothd 5.66 ends the links some 50 ms before it says
        /// that Bluetooth was switched off, and then the new state alone is reported.
        var heldLoss = Duration.milliseconds(200)
        /// Between two questions whether another program has ended the link that it is ending.
        var leaseRetry = Duration.milliseconds(100)
        /// For all preserved peripherals to be looked up, before the app gets what was restored without the rest.
        var restoration = Duration.seconds(2)
        /// Within that time after a failed attempt, the end of bluetoothd is blamed on the peer's lost keys (5.66 crashes).
        var lostBondCrash = Duration.seconds(2)
    }

    /// Attributes of a connected device.
    struct GATT: Sendable {
        /// BlueZ announces a changed attribute table object by object, within some milliseconds.
        var tableChange = Duration.milliseconds(100)
        /// A socket for writes without response that is not used for so long is given back, because it is exclusive.
        var idleWriter = Duration.seconds(5)
        /// BlueZ notices a closed socket some moments later, and refuses other writes until then: doubled with each try.
        var writerRetry = Duration.milliseconds(5)
        /// Between two looks whether BlueZ has emptied a socket, doubled from the shortest to the longest.
        var drain = (shortest: Duration.milliseconds(1), longest: Duration.milliseconds(16))
    }

    struct Pairing: Sendable {
        /// After the agent was registered, before it is checked that devices can bond: by then bluetoothd knows the setting
        /// of the kernel.
        var agentRetry = Duration.milliseconds(100)
        /// How often the agent is registered at most; bonding may be off because the user wants that.
        var agentRetries = 3
    }

    /// The peripheral role.
    struct Server: Sendable {
        /// bluetoothd answers a central itself after 5 s (src/gatt-database.c, `ATT_TIMEOUT`).
        var request = Duration.seconds(5)
        /// For a new adapter's LEAdvertisingManager1, which appears some time after `Powered`.
        var advertisingManager = Duration.seconds(3)
        var advertisingRetry = Duration.milliseconds(100)
        /// For a central to confirm an indication (Core Spec 5.4, Vol 3, Part F, 3.3.3: the ATT transaction timeout).
        var confirmation = Duration.seconds(30)
    }
}

extension Duration {
    /// This delay, doubled `times` times, but at most `longest`.
    func doubled(_ times: Int, upTo longest: Duration) -> Duration {
        // 2^30 times the shortest delay is longer than any longest one.
        min(self * (1 << min(max(times, 0), 30)), longest)
    }
}
