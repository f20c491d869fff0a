/// A weak reference in a constant: `weak let` is for later compilers only.
struct Weak<Object: AnyObject> {
    private(set) weak var object: Object?

    init(_ object: Object?) { self.object = object }
}
