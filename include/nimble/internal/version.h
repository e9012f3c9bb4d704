// The version of Nimble: the one place where it is written besides CMakeLists.txt, which checks that both agree.
#pragma once

namespace nimble {

inline constexpr const char kVersion[] = "0.1.0";

}  // namespace nimble
