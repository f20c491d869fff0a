/// The version of this package. It stands here and in CHANGELOG.md, and `scripts/check-sources` compares the two.
package let bluezKitVersion = "0.9.0"
