/// The numbers by which an app's peripheral knows the attributes of its link, and where BlueZ has them. Pure.
struct AttributeNumbers {
    struct Place: Equatable {
        /// BlueZ's object path.
        let path: String
        /// The version of its service when it was found (``AttributeTable/version(of:)``): another attribute may use
        /// its path now. Nil: found by an earlier process.
        let version: Int?
    }

    private var places: [AttributeID: Place] = [:]
    private var ids: [String: AttributeID] = [:]
    private var last: UInt32 = 0

    subscript(id: AttributeID) -> Place? { places[id] }

    /// The number of the attribute at `path`: the one that the app knows already, if it does (GD-4).
    mutating func id(of path: String, version: Int?) -> AttributeID {
        if let known = ids[path] { return known }
        last &+= 1
        let id = AttributeID(rawValue: last)
        (ids[path], places[id]) = (id, Place(path: path, version: version))
        return id
    }

    /// The table has changed in these services, which have these versions now.
    /// - Returns: The attributes of older versions, which have no number any longer (IV-1). What the app has found
    ///   since stays.
    mutating func remove(before versions: [String: Int]) -> [AttributeID] {
        let gone = places.filter { _, place in
            versions[AttributeTable.service(of: place.path)].map { $0 != place.version } ?? false
        }
        for (id, place) in gone { (places[id], ids[place.path]) = (nil, nil) }
        return gone.keys.sorted { $0.rawValue < $1.rawValue }
    }
}
