/// The version of this package, or that which it will be. It stands here, in CHANGELOG.md and in README.md, and
/// `scripts/check-sources` compares them.
package let bluezKitVersion = "0.10.0"
