// digits: trains and runs an Inception-style network on images of handwritten digits, through the CUDA driver API.
#include "program.h"

using namespace digits;

int main(int argc, char** argv) {
  return program(
      argc, argv,
      {.stream = [] { return std::make_unique<Stream>(); },
       .network = [](const Device& device, Stream& stream,
                     const Parameters& parameters) { return std::make_unique<Network>(device, stream, parameters); }});
}
