// Apple's module makes Foundation and Dispatch visible to whoever imports it (355 of 1,202 surveyed files rely on it).
@_exported import Dispatch
@_exported import Foundation
