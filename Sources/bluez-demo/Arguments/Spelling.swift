/// Finds what was meant by a misspelt word.
enum Spelling {
    /// The candidate that begins with the word, or differs from it by two characters at most: one wrong, missing,
    /// surplus, or exchanged with its neighbour counts as one.
    static func nearest(to word: String, of candidates: [String]) -> String? {
        guard !word.isEmpty else { return nil }
        if let longer = candidates.first(where: { $0.hasPrefix(word) || word.hasPrefix($0) }) { return longer }
        let nearest = candidates.map { ($0, distance(word, $0)) }.min { $0.1 < $1.1 }
        // Of a short word that many changes leave nothing.
        return nearest.flatMap { $0.1 <= min(2, word.count / 2) ? $0.0 : nil }
    }

    /// The distance of Damerau and Levenshtein, for neighbours that are exchanged once.
    static func distance(_ left: String, _ right: String) -> Int {
        let (left, right) = (Array(left), Array(right))
        var rows = [Array(0...right.count)]
        for (row, character) in left.enumerated() {
            var current = [row + 1]
            for (column, other) in right.enumerated() {
                let replaced = rows[row][column] + (character == other ? 0 : 1)
                var best = min(replaced, rows[row][column + 1] + 1, current[column] + 1)
                if row > 0, column > 0, character == right[column - 1], left[row - 1] == other {
                    best = min(best, rows[row - 1][column - 1] + 1)
                }
                current.append(best)
            }
            rows.append(current)
        }
        return rows[left.count][right.count]
    }
}
