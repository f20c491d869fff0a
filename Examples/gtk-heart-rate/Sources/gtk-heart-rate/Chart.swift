import CGtk
import Foundation

/// The last minute: the heart rate as a line, and below it the intervals between beats as dots.
final class Chart {
    let widget: Widget
    private let monitor: HeartMonitor
    private static let seconds = 60.0
    /// A line does not cross a time without measurements.
    private static let gap = 5.0

    init(_ monitor: HeartMonitor) {
        self.monitor = monitor
        widget = gtk_drawing_area_new().expand(vertically: true)
        gtk_widget_set_size_request(widget, 320, 220)
        // The window keeps the chart as long as the widget.
        let draw: GtkDrawingAreaDrawFunc = { _, cairo, width, height, chart in
            guard let cairo, let chart else { return }
            Unmanaged<Chart>.fromOpaque(chart).takeUnretainedValue().draw(cairo, Double(width), Double(height))
        }
        gtk_drawing_area_set_draw_func(widget.cast(), draw, Unmanaged.passUnretained(self).toOpaque(), nil)
    }

    func redraw() { gtk_widget_queue_draw(widget) }

    private struct Color {
        let red, green, blue: Double
        func set(_ cairo: OpaquePointer, alpha: Double = 1) { cairo_set_source_rgba(cairo, red, green, blue, alpha) }
    }

    /// A part of the drawing, and what its heights mean.
    private struct Area {
        let left, right, top, bottom, low, high: Double
        let now: Date
        func x(_ time: Date) -> Double { right - now.timeIntervalSince(time) / Chart.seconds * (right - left) }
        func y(_ value: Double) -> Double { bottom - (value - low) / (high - low) * (bottom - top) }
    }

    private func draw(_ cairo: OpaquePointer, _ width: Double, _ height: Double) {
        let foreground = gtk_shim_color(widget)
        let text = Color(red: Double(foreground.red), green: Double(foreground.green), blue: Double(foreground.blue))
        let isDark = text.green > 0.5
        let red = isDark ? Color(red: 1, green: 0.42, blue: 0.38) : Color(red: 0.88, green: 0.11, blue: 0.14)
        let blue = isDark ? Color(red: 0.47, green: 0.68, blue: 0.93) : Color(red: 0.21, green: 0.52, blue: 0.89)
        // Pale while nothing comes.
        let strength = monitor.link == .live ? 1.0 : 0.45

        let now = Date()
        let samples = monitor.samples.filter { now.timeIntervalSince($0.time) < Self.seconds + Self.gap }
        let rates = samples.map { Double($0.beatsPerMinute) }
        let middle = height * 0.66
        let rate = area(rates, step: 10, least: 40, (40, width - 8, 26, middle - 22), now)
        grid(cairo, rate, text, step: 10)
        write(cairo, "Heart rate, bpm", 0, 0, text, alpha: 0.7)
        for line in lines(samples) { curve(cairo, line, rate, red, strength) }

        let intervals = samples.flatMap(\.intervals)
        let lane = area(intervals, step: 50, least: 200, (40, width - 8, middle + 26, height - 24), now)
        grid(cairo, lane, text, step: 50)
        write(cairo, "RR interval, ms", 0, middle, text, alpha: 0.7)
        for sample in samples where now.timeIntervalSince(sample.time) < Self.seconds {
            for interval in sample.intervals {
                cairo_arc(cairo, lane.x(sample.time), lane.y(interval), 2.5, 0, 2 * .pi)
                blue.set(cairo, alpha: strength)
                cairo_fill(cairo)
            }
        }
        for ago in stride(from: 0.0, through: Self.seconds, by: 15) {
            let label = ago == 0 ? "now" : "\(Int(ago)) s"
            let x = lane.x(now.addingTimeInterval(-ago))
            write(cairo, label, x, height - 16, text, alpha: 0.5, anchor: ago == 0 ? 1 : ago == Self.seconds ? 0 : 0.5)
        }
    }

    /// - Parameter least: The smallest range of values.
    private func area(
        _ values: [Double], step: Double, least: Double, _ place: (Double, Double, Double, Double), _ now: Date
    ) -> Area {
        var low = (((values.min() ?? 60) - 0.3 * step) / step).rounded(.down) * step
        var high = (((values.max() ?? 60) + 0.3 * step) / step).rounded(.up) * step
        if high - low < least {
            low = max(((low + high - least) / 2 / step).rounded(.down) * step, 0)
            high = max(high, low + least)
        }
        return Area(
            left: place.0, right: place.1, top: place.2, bottom: place.3, low: low, high: high, now: now)
    }

    private func grid(_ cairo: OpaquePointer, _ area: Area, _ text: Color, step: Double) {
        cairo_set_line_width(cairo, 1)
        // Few lines, however far the values are apart.
        let step = step * max(1, ((area.high - area.low) / step / 4).rounded(.up))
        for value in stride(from: area.low, through: area.high, by: step) {
            let y = area.y(value).rounded() + 0.5
            cairo_move_to(cairo, area.left, y)
            cairo_line_to(cairo, area.right, y)
            text.set(cairo, alpha: 0.1)
            cairo_stroke(cairo)
            write(cairo, "\(Int(value))", area.left - 8, y - 8, text, alpha: 0.5, anchor: 1)
        }
    }

    private func lines(_ samples: [HeartMonitor.Sample]) -> [[HeartMonitor.Sample]] {
        var lines: [[HeartMonitor.Sample]] = []
        for sample in samples {
            if let last = lines.last?.last, sample.time.timeIntervalSince(last.time) < Self.gap {
                lines[lines.count - 1].append(sample)
            } else {
                lines.append([sample])
            }
        }
        return lines
    }

    private func curve(
        _ cairo: OpaquePointer, _ samples: [HeartMonitor.Sample], _ area: Area, _ color: Color, _ strength: Double
    ) {
        guard let first = samples.first, let last = samples.last else { return }
        cairo_save(cairo)
        cairo_rectangle(cairo, area.left, 0, area.right - area.left + 6, area.bottom)
        cairo_clip(cairo)
        for sample in samples { cairo_line_to(cairo, area.x(sample.time), area.y(Double(sample.beatsPerMinute))) }
        let line = cairo_copy_path(cairo)
        cairo_line_to(cairo, area.x(last.time), area.bottom)
        cairo_line_to(cairo, area.x(first.time), area.bottom)
        cairo_close_path(cairo)
        let fade = cairo_pattern_create_linear(0, area.top, 0, area.bottom)
        cairo_pattern_add_color_stop_rgba(fade, 0, color.red, color.green, color.blue, 0.3 * strength)
        cairo_pattern_add_color_stop_rgba(fade, 1, color.red, color.green, color.blue, 0)
        cairo_set_source(cairo, fade)
        cairo_fill(cairo)
        cairo_pattern_destroy(fade)
        cairo_append_path(cairo, line)
        cairo_path_destroy(line)
        cairo_set_line_width(cairo, 2.5)
        cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND)
        cairo_set_line_cap(cairo, CAIRO_LINE_CAP_ROUND)
        color.set(cairo, alpha: strength)
        cairo_stroke(cairo)
        cairo_arc(cairo, area.x(last.time), area.y(Double(last.beatsPerMinute)), 4, 0, 2 * .pi)
        cairo_fill(cairo)
        cairo_restore(cairo)
    }

    /// - Parameter anchor: Which part of the text is at `x`: 0 its left end, 1 its right end.
    private func write(
        _ cairo: OpaquePointer, _ string: String, _ x: Double, _ y: Double, _ color: Color, alpha: Double,
        anchor: Double = 0
    ) {
        guard let layout = gtk_widget_create_pango_layout(widget, string) else { return }
        let font = pango_font_description_from_string("Cantarell, Sans 9")
        pango_layout_set_font_description(layout, font)
        pango_font_description_free(font)
        var (width, height) = (Int32(0), Int32(0))
        pango_layout_get_pixel_size(layout, &width, &height)
        cairo_move_to(cairo, (x - anchor * Double(width)).rounded(), y.rounded())
        color.set(cairo, alpha: alpha)
        pango_cairo_show_layout(cairo, layout)
        g_object_unref(UnsafeMutableRawPointer(layout))
    }
}
