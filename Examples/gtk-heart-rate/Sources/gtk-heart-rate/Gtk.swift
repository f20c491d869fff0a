import CGtk

// GTK's C interface, with closures. Everything is on the main thread.

typealias Widget = UnsafeMutablePointer<GtkWidget>

extension UnsafeMutablePointer<GtkWidget> {
    /// As the type that a function of GTK takes: of some the C headers show the structure, of others they do not.
    var opaque: OpaquePointer { OpaquePointer(self) }
    func cast<T>(to type: T.Type = T.self) -> UnsafeMutablePointer<T> {
        UnsafeMutableRawPointer(self).assumingMemoryBound(to: type)
    }

    func add(style name: String) -> Widget {
        gtk_widget_add_css_class(self, name)
        return self
    }

    func margin(_ size: Int32) -> Widget {
        gtk_widget_set_margin_start(self, size)
        gtk_widget_set_margin_end(self, size)
        gtk_widget_set_margin_top(self, size)
        gtk_widget_set_margin_bottom(self, size)
        return self
    }

    func expand(horizontally: Bool = true, vertically: Bool = false) -> Widget {
        gtk_widget_set_hexpand(self, horizontally ? 1 : 0)
        gtk_widget_set_vexpand(self, vertically ? 1 : 0)
        return self
    }

    var isVisible: Bool {
        get { gtk_widget_get_visible(self) != 0 }
        nonmutating set { gtk_widget_set_visible(self, newValue ? 1 : 0) }
    }
}

func box(_ orientation: GtkOrientation, spacing: Int32 = 0, _ children: Widget...) -> Widget {
    let box: Widget = gtk_box_new(orientation, spacing)
    for child in children { gtk_box_append(box.cast(), child) }
    return box
}

/// A text that may change.
struct Label {
    let widget: Widget

    init(_ text: String = "", _ styles: String..., align: Float = 0) {
        widget = gtk_label_new(text)
        for style in styles { gtk_widget_add_css_class(widget, style) }
        gtk_label_set_xalign(widget.opaque, align)
        gtk_label_set_ellipsize(widget.opaque, PANGO_ELLIPSIZE_END)
    }

    var text: String {
        get { String(cString: gtk_label_get_text(widget.opaque)) }
        nonmutating set { gtk_label_set_text(widget.opaque, newValue) }
    }

    /// In several lines if necessary.
    func wrapped(to characters: Int32) -> Label {
        gtk_label_set_ellipsize(widget.opaque, PANGO_ELLIPSIZE_NONE)
        gtk_label_set_wrap(widget.opaque, 1)
        gtk_label_set_max_width_chars(widget.opaque, characters)
        gtk_label_set_justify(widget.opaque, GTK_JUSTIFY_CENTER)
        return self
    }
}

private final class Handler {
    let run: () -> Void
    init(_ run: @escaping () -> Void) { self.run = run }
}

/// Calls `body` for a signal, whatever it brings.
func connect(_ object: UnsafeMutableRawPointer, _ signal: String, _ body: @escaping () -> Void) {
    let handler: @convention(c) (UnsafeMutableRawPointer) -> Void = {
        Unmanaged<Handler>.fromOpaque($0).takeUnretainedValue().run()
    }
    g_signal_connect_data(
        object, signal, unsafeBitCast(handler, to: GCallback.self), Unmanaged.passRetained(Handler(body)).toOpaque(),
        { data, _ in data.map { Unmanaged<Handler>.fromOpaque($0).release() } }, G_CONNECT_SWAPPED)
}

/// Calls `body` each second.
func everySecond(_ body: @escaping () -> Void) {
    g_timeout_add_seconds_full(
        G_PRIORITY_DEFAULT, 1,
        {
            $0.map { Unmanaged<Handler>.fromOpaque($0).takeUnretainedValue().run() }
            return 1
        }, Unmanaged.passRetained(Handler(body)).toOpaque(), { $0.map { Unmanaged<Handler>.fromOpaque($0).release() } })
}
