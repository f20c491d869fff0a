extension Character {
    /// Columns on a terminal: 0, 1 or 2.
    var displayWidth: Int {
        var width = 0
        for scalar in unicodeScalars {
            if scalar.value == 0xFE0F { return 2 }  // the variation selector for emoji
            if width == 0 { width = scalar.displayWidth }
        }
        return width
    }
}

extension Unicode.Scalar {
    /// Whether it is not a visible character: controls, line ends, marks that change the direction of text, and
    /// unassigned code points.
    var isUnseen: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: true
        default: false
        }
    }

    fileprivate var displayWidth: Int {
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format, .control: return 0
        default: break
        }
        switch value {
        // East Asian Wide and Fullwidth, and emoji (UAX #11), approximately.
        case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xA960...0xA97C, 0xAC00...0xD7A3, 0xF900...0xFAFF,
            0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F, 0x1F680...0x1F6FF, 0x1F900...0x1F9FF,
            0x20000...0x3FFFD:
            return 2
        default: return properties.isEmojiPresentation ? 2 : 1
        }
    }
}

extension String {
    var displayWidth: Int { reduce(0) { $0 + $1.displayWidth } }

    /// At most `width` columns, with "…" in place of what is cut off; `always` appends it even if everything fits.
    func clipped(to width: Int, always: Bool = false) -> String {
        guard always || displayWidth > width else { return self }
        guard width > 0 else { return "" }
        var result = ""
        var left = width - 1
        for character in self {
            left -= character.displayWidth
            guard left >= 0 else { break }
            result.append(character)
        }
        return result + "…"
    }

    /// Text from other devices, made safe to show: without controls, line breaks, and marks that change the direction
    /// of text, any of which could make a terminal show something misleading; and with a limited number of combining
    /// marks, none of which counts as a column.
    var harmless: String {
        var result = String.UnicodeScalarView()
        for character in self {
            // More than any script or emoji needs (UAX #15, section 13).
            for scalar in character.unicodeScalars.prefix(32) {
                // The joiner connects some emoji and the letters of some scripts.
                result.append(scalar.isUnseen && scalar.value != 0x200D ? "\u{FFFD}" : scalar)
            }
        }
        return String(result)
    }
}
