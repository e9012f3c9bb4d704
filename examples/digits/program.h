// The program: its command line, what its commands do, and what they print. digits.cpp runs it as it is;
// bench/by_hand/digits_graph.cpp runs it with a stream and a network of its own.
#pragma once

#include <functional>
#include <memory>

#include "driver.h"
#include "model.h"
#include "network.h"

namespace digits {

// What the commands use to make what they run on. The network uses the stream, and lives no longer.
struct Makers {
  std::function<std::unique_ptr<Stream>()> stream;
  std::function<std::unique_ptr<Network>(const Device&, Stream&, const Parameters&)> network;
};

// What main returns. Errors go to stderr, one line each.
int program(int argc, char** argv, const Makers& make);

}  // namespace digits
