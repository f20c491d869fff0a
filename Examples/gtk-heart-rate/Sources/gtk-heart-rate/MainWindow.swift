import CGtk
import CoreBluetooth

/// A list of sensors, and what the chosen one measures.
final class MainWindow {
    private let monitor: HeartMonitor
    private let window: Widget
    private let list: SensorList
    private let subtitle = Label("", "caption", "dim-label", align: 0.5)
    private let disconnectButton: Widget
    private let pages: Widget = gtk_stack_new()

    // The page that says why there is nothing to see.
    private let statusIcon: Widget
    private let statusSpinner: Widget = gtk_spinner_new()
    private let statusTitle = Label("", "title-1", align: 0.5).wrapped(to: 30)
    private let statusText = Label("", "dim-label", align: 0.5).wrapped(to: 44)

    // The page of the sensor.
    private let banner: Widget
    private let bannerText = Label()
    private let rate = Label("", "rate")
    private let interval = Label("", "figure")
    private let battery = Label("", "figure")
    private let contact = Label("", "figure")
    private let energy = Label("", "figure")
    private let chart: Chart

    static let style = """
        .rate { font-size: 60px; font-weight: 300; font-feature-settings: "tnum"; }
        .heart { color: @error_color; }
        .figure { font-size: 20px; font-feature-settings: "tnum"; }
        .card { background: @theme_base_color; border-radius: 12px; padding: 12px 16px; }
        .caption { font-size: 12px; }
        .heading, .sensor-name { font-weight: bold; }
        .title-1 { font-size: 24px; font-weight: 800; }
        .banner { background: alpha(@warning_color, 0.25); padding: 8px; }
        .sidebar { background: alpha(@theme_fg_color, 0.03); }
        .big-icon { opacity: 0.5; }
        """

    init(_ monitor: HeartMonitor, in application: UnsafeMutablePointer<GtkApplication>) {
        self.monitor = monitor
        list = SensorList(monitor)
        chart = Chart(monitor)
        statusIcon = gtk_shim_icon("bluetooth-symbolic", 96).add(style: "big-icon")
        gtk_widget_set_size_request(statusSpinner, 48, 48)
        let status = box(
            GTK_ORIENTATION_VERTICAL, spacing: 12, statusIcon, statusSpinner, statusTitle.widget, statusText.widget
        ).expand(vertically: true)
        gtk_widget_set_valign(status, GTK_ALIGN_CENTER)
        gtk_stack_add_named(pages.opaque, status, "status")

        banner = box(
            GTK_ORIENTATION_HORIZONTAL, spacing: 8, gtk_shim_icon("dialog-warning-symbolic", 16), bannerText.widget
        )
        .add(style: "banner")
        gtk_widget_set_halign(banner, GTK_ALIGN_FILL)
        gtk_widget_set_margin_start(gtk_widget_get_first_child(banner), 18)

        let heart = gtk_shim_icon("emblem-favorite-symbolic", 40).add(style: "heart")
        let unit = Label("bpm", "dim-label")
        gtk_widget_set_valign(unit.widget, GTK_ALIGN_END)
        gtk_widget_set_margin_bottom(unit.widget, 14)
        let number = box(GTK_ORIENTATION_HORIZONTAL, spacing: 10, heart, rate.widget, unit.widget).expand()
        let figures = box(GTK_ORIENTATION_HORIZONTAL, spacing: 12)
        for (title, figure) in [("RR", interval), ("Contact", contact), ("Energy", energy), ("Battery", battery)] {
            let card = box(
                GTK_ORIENTATION_VERTICAL, spacing: 2, Label(title, "caption", "dim-label").widget, figure.widget)
            gtk_box_append(figures.cast(), card.add(style: "card"))
        }
        gtk_widget_set_valign(figures, GTK_ALIGN_CENTER)
        let top = box(GTK_ORIENTATION_HORIZONTAL, spacing: 12, number, figures)
        let chartCard = box(GTK_ORIENTATION_VERTICAL, chart.widget).add(style: "card").expand(vertically: true)
        let content = box(GTK_ORIENTATION_VERTICAL, spacing: 12, top, chartCard).margin(18).expand(vertically: true)
        gtk_stack_add_named(pages.opaque, box(GTK_ORIENTATION_VERTICAL, banner, content), "sensor")

        window = gtk_application_window_new(application)
        gtk_window_set_title(window.cast(), "Heart Rate")
        gtk_window_set_default_size(window.cast(), 960, 600)
        let header: Widget = gtk_header_bar_new()
        let titles = box(GTK_ORIENTATION_VERTICAL, Label("Heart Rate", "heading", align: 0.5).widget, subtitle.widget)
        gtk_widget_set_valign(titles, GTK_ALIGN_CENTER)
        gtk_header_bar_set_title_widget(header.opaque, titles)
        disconnectButton = gtk_button_new_with_label("Disconnect")
        gtk_header_bar_pack_start(header.opaque, disconnectButton)
        gtk_window_set_titlebar(window.cast(), header)
        let separator: Widget = gtk_separator_new(GTK_ORIENTATION_VERTICAL)
        let page = pages.expand(vertically: true)
        gtk_window_set_child(window.cast(), box(GTK_ORIENTATION_HORIZONTAL, list.widget, separator, page))

        connect(disconnectButton, "clicked") { monitor.disconnect() }
        monitor.onChange = { [unowned self] in update() }
        // The chart moves on while nothing comes.
        everySecond { [unowned self] in if !monitor.samples.isEmpty { chart.redraw() } }
        update()
        gtk_window_present(window.cast())
    }

    func present() { gtk_window_present(window.cast()) }

    private func update() {
        list.update()
        disconnectButton.isVisible = monitor.chosen != nil
        let name = monitor.chosenName ?? "the sensor"
        subtitle.text = summary(name)
        subtitle.widget.isVisible = !subtitle.text.isEmpty
        if monitor.bluetooth == .poweredOn || monitor.bluetooth == .resetting, let last = monitor.samples.last {
            rate.text = monitor.link == .live ? "\(last.beatsPerMinute)" : "–"
            interval.text = last.intervals.last.map { "\(Int($0)) ms" } ?? "–"
            battery.text = monitor.battery.map { "\($0) %" } ?? "–"
            energy.text = monitor.energy.map { "\($0) kJ" } ?? "–"
            contact.text = monitor.contact == .detected ? "good" : monitor.contact == .notDetected ? "none" : "–"
            banner.isVisible = monitor.link != .live
            bannerText.text = "The link to \(name) was lost. It comes back as soon as the sensor does."
            gtk_stack_set_visible_child_name(pages.opaque, "sensor")
            chart.redraw()
        } else {
            let (icon, title, text) = status(name)
            if let icon { gtk_image_set_from_icon_name(statusIcon.opaque, icon) }
            statusIcon.isVisible = icon != nil
            statusSpinner.isVisible = icon == nil
            gtk_spinner_set_spinning(statusSpinner.opaque, icon == nil ? 1 : 0)
            (statusTitle.text, statusText.text) = (title, text)
            gtk_stack_set_visible_child_name(pages.opaque, "status")
        }
        report?(line)
    }

    private func summary(_ name: String) -> String {
        guard monitor.bluetooth == .poweredOn else { return "" }
        switch monitor.link {
        case .none: return "Searching"
        case .connecting: return "Connecting to \(name)"
        case .connected, .live: return "\(name), connected"
        case .lost: return "Waiting for \(name)"
        }
    }

    /// - Returns: An icon (nil: something is going on), a title and a sentence.
    private func status(_ name: String) -> (String?, String, String) {
        switch monitor.bluetooth {
        case .poweredOff:
            return ("bluetooth-disabled-symbolic", "Bluetooth Is Off", "Turn it on in the system's settings.")
        case .unsupported:
            return (
                "bluetooth-hardware-disabled-symbolic", "No Bluetooth",
                "There is no adapter, or bluetoothd does not run. Start with --simulated to try this app without one."
            )
        case .unauthorized:
            return (
                "bluetooth-hardware-disabled-symbolic", "Not Permitted", "This user may not use the system's Bluetooth."
            )
        case .resetting: return (nil, "Bluetooth Restarts", "It should be back in a moment.")
        case .poweredOn where monitor.link == .connected:
            return (nil, "Connected to \(name)", "Its first measurement comes in a moment.")
        case .poweredOn where monitor.chosen != nil:
            return (
                nil, "Connecting to \(name)",
                "Keep the sensor close, and wear it: most switch themselves off otherwise."
            )
        case .poweredOn:
            return (
                "emblem-favorite-symbolic", monitor.sensors.isEmpty ? "No Sensor Yet" : "Choose a Sensor",
                monitor.sensors.isEmpty
                    ? "Put on a heart-rate sensor. Most advertise only while they are worn."
                    : "The chart begins with its first measurement."
            )
        default: return (nil, "Starting", "")
        }
    }

    // MARK: For the test

    /// Told what is shown, after each change.
    var report: ((String) -> Void)?

    private var line: String {
        let page = String(cString: gtk_stack_get_visible_child_name(pages.opaque))
        guard page == "sensor" else { return "status: \(statusTitle.text); sensors: \(monitor.sensors.count)" }
        return "sensor: \(subtitle.text); rate: \(rate.text); RR: \(interval.text); battery: \(battery.text)"
            + "; lost: \(banner.isVisible); restored: \(monitor.wasRestored)"
    }
}
