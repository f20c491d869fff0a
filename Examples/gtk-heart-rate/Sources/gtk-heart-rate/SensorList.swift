import CGtk

/// The sensors in range; one of them is chosen.
final class SensorList {
    let widget: Widget
    private let monitor: HeartMonitor
    private let list: Widget
    private let searching: Widget
    private var rows: [Row] = []

    private struct Row {
        let widget: Widget
        let name = Label("", "sensor-name")
        let strength = Label("", "dim-label", "caption")
        let check = gtk_shim_icon("emblem-ok-symbolic", 16)

        init() {
            let texts = box(GTK_ORIENTATION_VERTICAL, spacing: 2, name.widget, strength.widget).expand()
            let line = box(
                GTK_ORIENTATION_HORIZONTAL, spacing: 12, gtk_shim_icon("emblem-favorite-symbolic", 16), texts)
            if let check { gtk_box_append(line.cast(), check) }
            widget = gtk_list_box_row_new()
            gtk_list_box_row_set_child(widget.cast(), line.margin(8))
        }
    }

    init(_ monitor: HeartMonitor) {
        self.monitor = monitor
        list = gtk_list_box_new().add(style: "navigation-sidebar").expand(vertically: true)
        let spinner: Widget = gtk_spinner_new()
        gtk_spinner_start(spinner.opaque)
        searching = box(
            GTK_ORIENTATION_HORIZONTAL, spacing: 12, spinner, Label("Searching…", "dim-label").widget
        ).margin(18)
        let heading = Label("Sensors", "heading")
        gtk_widget_set_margin_start(heading.widget, 18)
        gtk_widget_set_margin_top(heading.widget, 18)
        widget = box(GTK_ORIENTATION_VERTICAL, heading.widget, list, searching)
            .add(style: "sidebar").expand(horizontally: false)
        gtk_widget_set_size_request(widget, 230, -1)
        connect(list, "row-activated") { [unowned self] in
            guard let row = gtk_list_box_get_selected_row(list.opaque) else { return }
            let index = Int(gtk_list_box_row_get_index(row))
            if index < monitor.sensors.count { monitor.choose(monitor.sensors[index]) }
        }
    }

    func update() {
        if monitor.sensors.count < rows.count {
            for row in rows { gtk_list_box_remove(list.opaque, row.widget) }
            rows = []
        }
        while rows.count < monitor.sensors.count {
            let row = Row()
            gtk_list_box_append(list.opaque, row.widget)
            rows.append(row)
        }
        for (row, sensor) in zip(rows, monitor.sensors) {
            row.name.text = sensor.name
            let isChosen = sensor.peripheral.identifier == monitor.chosen?.identifier
            row.strength.text =
                isChosen ? text(monitor.link) : sensor.strength.map { "\($0 < 0 ? "−" : "")\($0.magnitude) dBm" } ?? ""
            row.strength.widget.isVisible = !row.strength.text.isEmpty
            row.check?.isVisible = isChosen && monitor.link == .live
            if isChosen { gtk_list_box_select_row(list.opaque, row.widget.cast()) }
        }
        if monitor.chosen == nil { gtk_list_box_unselect_all(list.opaque) }
        searching.isVisible = monitor.bluetooth == .poweredOn && monitor.chosen == nil
    }

    private func text(_ link: HeartMonitor.Link) -> String {
        switch link {
        case .none: ""
        case .connecting: "Connecting…"
        case .connected, .live: "Connected"
        case .lost: "Link lost"
        }
    }
}
