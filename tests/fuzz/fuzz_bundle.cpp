// Any bytes as a bundle's manifest give a Bundle with safe indices, or an InputError. For well-formed ones in
// nimble-replay see tests/integration/bundle_hostile_test.py
#include <cstdlib>
#include <string>

#include "analyzer/base/errors.h"
#include "replayer/bundle/saved/bundle_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nimble;
  try {
    const Bundle bundle = bundle::parse_manifest(std::string(reinterpret_cast<const char*>(data), size), "input");
    const auto walk = [&](const BundleContent& content, std::uint64_t bytes) {
      std::uint64_t left = bytes;
      for (std::size_t i = 0; i < content.size(); ++i) {
        const std::uint32_t piece = bundle::piece_bytes(bytes, i);
        if (piece == 0 || (content[i] != kNone && bundle.pieces.at(content[i]).bytes != piece)) std::abort();
        left -= piece;
      }
      if (left != 0) std::abort();
    };
    for (const BundleObject& object : bundle.objects) {
      if (object.start) walk(*object.start, object.size);
      if (object.end) walk(*object.end, object.size);
      if (object.image != kNone) static_cast<void>(bundle.images.at(object.image));
    }
    for (const auto* payloads : {&bundle.sources, &bundle.results})
      for (const BundlePayload& payload : *payloads) {
        walk(payload.content, payload.bytes);
        if (payload.op >= bundle.ops) std::abort();
      }
    for (const BundleImage& image : bundle.images)
      if (image.file.find('/') != std::string::npos) std::abort();
    if (bundle.images_of_ops.size() != bundle.ops) std::abort();
  } catch (const analyzer::InputError&) {
  }
  return 0;
}
