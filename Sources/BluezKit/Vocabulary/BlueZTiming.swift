/// What bluetoothd, the kernel and controllers take, as far as BluezKit's own times follow from it.
enum BlueZFacts {
    /// From `Device1.Disconnect` until the link is ended (src/device.c, `DISCONNECT_TIMER`). The kernel, too, keeps the
    /// links of a bluetoothd that has ended for so long.
    static let disconnect = Duration.seconds(2)
    /// How long `Device1.Connect` waits for a device that does not advertise.
    static let connect = Duration.seconds(40)
    /// How long `Device1.Pair` may take.
    static let pair = Duration.seconds(120)
    /// How long a device is kept that was only discovered, or has lost its link without a bond (`TemporaryTimeout` in
    /// main.conf).
    static let temporaryDevice = Duration.seconds(30)
    /// How often a controller that filters duplicates reports a device.
    static let scanCycle = Duration.seconds(10)
    /// For a peer to answer (Core Spec 5.4, Vol 3, Part F, 3.3.3: the ATT transaction timeout).
    static let attributeTransaction = Duration.seconds(30)
    /// For the next message of a pairing, and so for the user's answer (Core Spec 5.4, Vol 3, Part H, 3.4;
    /// net/bluetooth/smp.c, `SMP_TIMEOUT`).
    static let pairingStep = Duration.seconds(30)
    /// For this process to answer about one of its attributes (src/gatt-database.c, `ATT_TIMEOUT`).
    static let applicationAnswer = Duration.seconds(5)
}

/// Every time that BluezKit waits, in one place. Tests set shorter ones: for a bus (`Session.setTiming`), before the
/// first manager, or for what comes next.
struct BlueZTiming: Sendable {
    var daemon = Daemon()
    var adapter = Adapter()
    var scan = Scan()
    var connect = Connect()
    var link = Link()
    var gatt = GATT()
    var unanswered = Unanswered()
    var pairing = Pairing()
    var server = Server()
    var channel = Channel()

    /// When a D-Bus call counts as not answered: somewhat later than BlueZ itself may take. After a deadline BlueZ
    /// continues to work on the call. Tests make a BlueZ that does not answer, rather than shorter deadlines.
    enum Deadline {
        /// BlueZ answers most calls within milliseconds; some wait for the kernel or a controller.
        static let call = Duration.seconds(30)
        /// Longer than BlueZ tries; for pairing as well.
        static let connect = BlueZFacts.connect + .seconds(30)
        static let pair = BlueZFacts.pair + .seconds(30)
        /// For all that BlueZ knows. An app's thread waits for it.
        static let list = Duration.seconds(2)
        /// The same for the app's thread: the bus queue may be busy.
        static let blockedList = list + .seconds(2)
    }

    /// bluetoothd, and the connection to the bus.
    struct Daemon: Sendable {
        /// A call that takes longer leads to a `Ping`, and a `Ping` that takes longer to `.resetting`. bluetoothd
        /// answers a `Ping` within milliseconds, unless it is stopped or in an endless loop.
        var slowCall = Duration.seconds(10)
        /// After a lost connection to the bus, doubled with each failure up to ``longestReconnect``.
        var reconnect = Duration.milliseconds(250)
        var longestReconnect = Duration.seconds(8)
        /// An end of bluetoothd so soon after a scan was asked for may be a crash of that: long enough for its first
        /// advertisement to be heard.
        var crash = Duration.seconds(10)
        /// Before a call is repeated that the bus or bluetoothd was too busy for: doubled with each try.
        var busyRetry = Duration.milliseconds(50)
        /// How often such a call is repeated: 6.35 s in all.
        var busyRetries = 7
    }

    struct Adapter: Sendable {
        /// For an adapter, or a daemon, to come back before another adapter is used. A USB controller that is reset is
        /// away for about a second.
        var grace = Duration.seconds(3)
        /// After that, until `.unsupported` is reported for an adapter that was there. A slow machine takes about 10 s
        /// to start bluetoothd, and apps that see `.unsupported` may give up for good.
        var longGrace = Duration.seconds(17)
        /// After bluetoothd was restarted. Until the kernel has ended the links of the previous daemon, the new one
        /// reports them as connected.
        var staleLinks = BlueZFacts.disconnect + .milliseconds(500)
        /// Before `Powered` is asked for again, where the bus has refused the call.
        var poweredRetry = Duration.milliseconds(100)
    }

    struct Scan: Sendable {
        /// After a refusal of BlueZ, doubled with each up to ``longestRetry``.
        var retry = Duration.milliseconds(200)
        var longestRetry = Duration.seconds(5)
        /// How long a scan may hear nothing. Where there is any Bluetooth device near, something comes every few
        /// seconds.
        var silence = Duration.seconds(60)
        /// The same of a scan that has just begun, the first time.
        var firstSilence = Duration.seconds(5)
    }

    /// Which device attempts to connect (``ConnectScheduler``).
    struct Connect: Sendable {
        /// For the waiting devices to be heard, before one is attempted unheard: BlueZ does not report a device whose
        /// signal strength does not change.
        var listening = Duration.seconds(8)
        /// The longest attempt while others wait: of a device that was heard, and of one that was not.
        var heardAttempt = Duration.seconds(10)
        var unheardAttempt = Duration.seconds(4)
        /// How long after its last advertisement a device counts as being in range: until it must have been reported
        /// again.
        var inRange = BlueZFacts.scanCycle + .seconds(2)
        /// The longest part of an attempt during which discovery is paused. A device that is away must not keep the
        /// app's scan from going on.
        var discoveryPause = Duration.seconds(5)
        /// Whether the kernel may connect a bonded peripheral only while a discovery runs.
        var bondsNeedDiscovery = LinuxVersion.current.map { $0 >= .privateBondsNeedDiscovery } ?? false
        /// The pause of an attempt where that is so: long enough for a peripheral that needs none.
        var bondedPause = Duration.seconds(1)
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
        /// Between two looks for an LE link that has joined one of classic Bluetooth: BlueZ does not signal it.
        var silentLink = Duration.seconds(2)
        /// For `Connected` to become false after `Disconnect` was answered.
        var closing = Duration.seconds(5)
        /// From the unexpected end of a link until it is reported: bluetoothd 5.66 ends the links some 50 ms before it
        /// says that Bluetooth was switched off, and then the new state alone is reported.
        var heldLoss = Duration.milliseconds(200)
        /// For an app that releases a connected peripheral to release its manager as well, before the log says that it
        /// should have cancelled: both at once is an end in good order.
        var release = Duration.milliseconds(250)
        /// Between two questions whether another program has ended the link that it is ending.
        var leaseRetry = Duration.milliseconds(100)
        /// For all preserved peripherals to be looked up, before the app gets what was restored without the rest: links
        /// that are there count as lost then, with their subscriptions. bluetoothd answers within milliseconds, but for
        /// one that is kept busy, and a machine that is: as long as a call may take otherwise (``Daemon/slowCall``).
        var restoration = Duration.seconds(10)
        /// Within that time after a failed attempt, the end of bluetoothd is blamed on the peer's lost keys (5.66
        /// crashes).
        var lostBondCrash = Duration.seconds(2)
        /// Between the answer to an attempt and the end of its link, where that means the peer's lost keys: BlueZ sends
        /// both in one turn of its loop. Only another program on this computer, or its going to sleep, may end a link
        /// as soon.
        var lostBondAnswer = Duration.milliseconds(50)
        /// For BlueZ to make such a link once more, as it does on its own (src/device.c, `att_connect_cb`), before its
        /// end is reported. An attempt that is called off as the link comes up leaves it on the air, unknown to Linux,
        /// so that the peripheral cannot be found until Bluetooth is switched off (net/bluetooth/hci_event.c,
        /// `HCI_CONN_CANCEL`).
        var secondAttempt = Duration.seconds(3)
        /// After the end of a link, while bluetoothd may not have finished with it.
        var lateEnd = Duration.seconds(1)
        /// For a `Connect` in that time to be answered, or to be made without an answer, before it counts as lost. More
        /// than a page of classic Bluetooth takes (5.12 s). What BlueZ tries after that is called off with it, once.
        var lostConnect = Duration.seconds(7)
    }

    /// Attributes of a connected device.
    struct GATT: Sendable {
        /// For a read, a write or a subscription to be answered. The link ends then: the peer may not be asked anything
        /// after it.
        var answer = BlueZFacts.attributeTransaction + .seconds(5)
        /// The same of a peripheral that is not bonded and may pair first. However long an agent takes then, the kernel
        /// ends the link if pairing does not go on.
        var pairingAnswer = BlueZFacts.attributeTransaction + BlueZFacts.pairingStep + .seconds(5)
        /// In addition, for each further transaction that a long value takes, on a link with long intervals.
        var furtherAnswer = Duration.seconds(2)
        /// In addition, for each byte that was written without response since the peer has last answered, and that a
        /// slow link, which carries 500 of them in a second, has not carried since: BlueZ takes them all at once, and
        /// sends them before the request.
        var unsentByte = Duration.milliseconds(2)
        /// At most. BlueZ may also have lost the request.
        var longestUnsent = Duration.seconds(300)
        /// BlueZ announces a changed attribute table object by object, within some milliseconds.
        var tableChange = Duration.milliseconds(100)
        /// For the first service of a device that is connected by classic Bluetooth as well: BlueZ does not say then
        /// that there is none. And for `ServicesResolved` of one that has been: what there is counts then.
        var firstServices = Duration.seconds(10)
        /// For BlueZ to tell the MTU of a link that was there before: then `didConnect` comes without. It takes some
        /// calls that BlueZ answers at once.
        var mtu = Duration.seconds(1)
        /// A socket for writes without response that is not used for so long is given back, because it is exclusive.
        var idleWriter = Duration.seconds(1)
        /// From the end of a socket for notifications until it counts as closed by another program: if the link has
        /// ended, or bluetoothd, the bus tells it by then.
        var socketEnd = Duration.milliseconds(200)
        /// BlueZ notices a closed socket some moments later, and refuses other writes until then: doubled with each
        /// try.
        var writerRetry = Duration.milliseconds(5)
        /// How often such a write is repeated: 2.6 s in all, longer than another program with BluezKit keeps a socket.
        var writerRetries = 9
        /// Before a full socket is written to again, where there is no descriptor left to watch it with.
        var descriptorRetry = Duration.milliseconds(10)
        /// Between two looks whether BlueZ has emptied a socket, doubled from the shortest to the longest.
        var drain = (shortest: Duration.milliseconds(1), longest: Duration.milliseconds(16))
        /// How long BlueZ may leave unread what is in a socket for updates, while something waits for that.
        var unreadSocket = Duration.seconds(5)
        /// How long BlueZ takes at most to read an update: one that was sent no longer before the socket ended may be
        /// lost.
        var updateReading = Duration.milliseconds(200)
    }

    /// Calls that BlueZ never answers (``CallBudget``, ``CallLane``).
    struct Unanswered: Sendable {
        /// So many within ``window`` end the link of their device.
        var calls = 8
        var window = Duration.seconds(600)
        /// Then no link is made to it for so long, doubled each time up to ``longestPause``. After that time without
        /// another one it starts over.
        var pause = Duration.seconds(60)
        var longestPause = Duration.seconds(3600)
        /// A call that is no operation counts when it has waited for so long: BlueZ answers most within milliseconds.
        /// Of all calls that wait so long, as many as ``lane`` make others use another connection.
        var late = Duration.seconds(1)
        /// So many on a connection make new links use another one, and end a link that has lost ``calls`` of them,
        /// however slowly. The bus allows 128.
        var lane = 40
        /// So many end any link that loses one.
        var fullLane = 60
    }

    struct Pairing: Sendable {
        /// After the agent was registered, before it is checked that devices can bond: by then bluetoothd knows the
        /// setting of the kernel.
        var agentRetry = Duration.milliseconds(100)
        /// For the bond to be announced, after the answer to the operation that the pairing was for. It comes within
        /// milliseconds, unless the peer makes none.
        var bond = Duration.seconds(2)
        /// How often the agent is registered at most; bonding may be off because the user wants that.
        var agentRetries = 3
    }

    /// The peripheral role.
    struct Server: Sendable {
        /// For the app to answer a request. bluetoothd answers the central itself after that time.
        var request = BlueZFacts.applicationAnswer
        /// For a new adapter's LEAdvertisingManager1, which appears some time after `Powered`.
        var advertisingManager = Duration.seconds(3)
        var advertisingRetry = Duration.milliseconds(100)
        /// For a central to confirm an indication.
        var confirmation = BlueZFacts.attributeTransaction
    }

    /// L2CAP channels.
    struct Channel: Sendable {
        /// How long a closed channel stays open for what the app has written and the peer has not taken. The kernel
        /// drops that when the socket is closed.
        var lingering = Duration.seconds(10)
        /// From here on a refusal is not the peer's: the kernel waits for a pairing for 40 s, and then says so
        /// (net/bluetooth/l2cap_core.c, `L2CAP_CONN_TIMEOUT`). A peer refuses in one round trip.
        var unpaired = Duration.seconds(35)
        /// Between two looks whether all has been sent, doubled from the shortest to the longest.
        var drain = (shortest: Duration.milliseconds(2), longest: Duration.milliseconds(64))
        /// Before a channel is accepted again, where the process had no descriptor left for one.
        var acceptRetry = Duration.milliseconds(100)
    }

    /// Preserved state. No part of a session's times: an `IntentBook` gets its own, as it is made before the session is
    /// used, on the app's thread.
    struct Preservation: Sendable {
        /// How long bluetoothd takes at most from switching an adapter off to exiting, when it is asked to exit.
        var powerOffReset = Duration.seconds(10)
        /// Before a save is tried again: a full disk takes some time to be noticed and emptied.
        var saveRetry = Duration.seconds(5)
        /// Between two saves of what changes often and matters little.
        var gathering = Duration.seconds(1)
        /// For another process, which ends unclaimed links, to let go of a file: some milliseconds.
        var lockRetry = Duration.milliseconds(10)
        var lockRetries = 5
        /// For an app to make the manager again whose state another process has left, before that state's links are
        /// ended.
        var claims = Duration.seconds(30)
    }

    /// No part of a session's times either: the log is the process's.
    struct Log: Sendable {
        /// Between two lines about the same thing, where a peer or another program can cause any number of them.
        var repetition = Duration.seconds(60)
    }
}

extension Duration {
    /// This delay, doubled `times` times, but at most `longest`.
    func doubled(_ times: Int, upTo longest: Duration) -> Duration {
        // 2^30 times the shortest delay is longer than any longest one.
        min(self * (1 << min(max(times, 0), 30)), longest)
    }
}
