#include "replayer/bundle/saved/bundle_reader.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "analyzer/base/json_fields.h"

namespace nimble::bundle {

namespace {

using analyzer::Fields;
using analyzer::FilePlace;
using analyzer::InputError;
using Json = nlohmann::json;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 47;  // of anything: what user space can address

[[noreturn]] void fail(const std::string& path, const std::string& why) { throw InputError(path, 0, "", why); }
[[noreturn]] void fail_by_system(const std::string& path) { fail(path, std::strerror(errno)); }

std::uint64_t digest_in(const Fields& fields, const Json& value, const char* name) {
  const std::string& text = fields.text_of(value, name);
  std::uint64_t digest = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    fields.fail(name, "must be 16 hexadecimal digits");
  return digest;
}

// A file in the bundle's folder.
std::string file_name(const Fields& fields, const char* name) {
  const std::string& text = fields.text(name);
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  if (text.empty() || text.size() > 255 || text[0] == '.' || !std::all_of(text.begin(), text.end(), plain))
    fields.fail(name, "must be the plain name of a file in the bundle");
  return text;
}

class ManifestReader {
 public:
  ManifestReader(const Json& root, const std::string& source)
      : root_(root), place_{source, 0}, top_(root_, "", place_) {}

  Bundle read() {
    const std::uint64_t version = top_.number("nimble_bundle");
    if (version != kBundleVersion)
      top_.fail("nimble_bundle", "is " + std::to_string(version) + "; this nimble-replay reads version " +
                                     std::to_string(kBundleVersion) + ". Record the bundle again");
    read_step();
    read_pieces();
    for_each("images", [&](const Fields& fields) {
      const std::uint64_t bytes = fields.number("bytes", kMostImageBytes);
      bundle_.images.push_back(
          {file_name(fields, "file"), bytes, digest_in(fields, fields.member("digest"), "digest")});
    });
    read_images_of_ops();
    for_each("objects", [&](const Fields& fields) { bundle_.objects.push_back(object(fields)); });
    check_overlaps(&BundleObject::start, "start");
    check_overlaps(&BundleObject::end, "end");
    check_kinds();
    for_each("sources", [&](const Fields& fields) { bundle_.sources.push_back(payload(fields)); });
    for_each("results", [&](const Fields& fields) { bundle_.results.push_back(payload(fields)); });
    for (const Json& text : top_.list("hidden")) bundle_.hidden.push_back(top_.text_of(text, "hidden"));
    return std::move(bundle_);
  }

 private:
  template <class Function>
  void for_each(const char* name, Function function) {
    std::size_t i = 0;
    for (const Json& item : top_.list(name)) {
      const std::string prefix = std::string(name) + "[" + std::to_string(i++) + "].";
      if (!item.is_object()) top_.fail(name, "[" + std::to_string(i - 1) + "] must be an object");
      function(Fields(item, prefix.c_str(), place_));
    }
  }

  void read_step() {
    const Fields step(top_.object("step"), "step.", place_);
    bundle_.first_seq = step.number("first");
    bundle_.last_seq = step.number("last");
    bundle_.ops = static_cast<std::uint32_t>(step.number("ops", kMostOps));
    if (bundle_.ops == 0) step.fail("ops", "must not be 0");
    if (bundle_.last_seq < bundle_.first_seq) step.fail("last", "must not come before step.first");
  }

  void read_pieces() {
    for (const Json& item : top_.list("pieces")) {
      if (!item.is_array() || item.size() != 3) top_.fail("pieces", "must be a list of [offset, bytes, digest]");
      BundlePiece piece;
      piece.offset = top_.number_of(item[0], "pieces", kMostBytes);
      piece.bytes = static_cast<std::uint32_t>(top_.number_of(item[1], "pieces", kBundlePiece));
      piece.digest = digest_in(top_, item[2], "pieces");
      if (piece.bytes == 0) top_.fail("pieces", "must not be empty");
      bundle_.pieces.push_back(piece);
    }
  }

  std::uint32_t index_or_none(const Fields& fields, const Json& value, const char* name, std::size_t count) {
    if (value.is_null()) return kNone;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= count)
      fields.fail(name, "must be null, or an integer below " + std::to_string(count));
    return static_cast<std::uint32_t>(value.get<std::uint64_t>());
  }

  void read_images_of_ops() {
    const Json& list = top_.list("images_of_ops");
    if (list.size() != bundle_.ops) top_.fail("images_of_ops", "must have an entry for each op of the step");
    for (const Json& item : list)
      bundle_.images_of_ops.push_back(index_or_none(top_, item, "images_of_ops", bundle_.images.size()));
  }

  BundleContent content(const Fields& fields, const char* name, std::uint64_t size) {
    const Json& list = fields.list(name);
    if (list.size() != (size + kBundlePiece - 1) / kBundlePiece)
      fields.fail(name, "must have a piece for every " + std::to_string(kBundlePiece) + " bytes");
    BundleContent pieces;
    for (const Json& item : list) {
      const std::uint32_t piece = index_or_none(fields, item, name, bundle_.pieces.size());
      if (piece != kNone && bundle_.pieces[piece].bytes != piece_bytes(size, pieces.size()))
        fields.fail(name, "names piece " + std::to_string(piece) + ", which has another size");
      pieces.push_back(piece);
    }
    return pieces;
  }

  // An address and a size, which must lie in user space.
  void range(const Fields& fields, const char* size_name, std::uint64_t& address, std::uint64_t& size) {
    address = fields.number("address", std::uint64_t{1} << 57);
    size = fields.number(size_name, kMostBytes);
    if (size == 0) fields.fail(size_name, "must not be 0");
  }

  BundleObject object(const Fields& fields) {
    BundleObject object;
    range(fields, "size", object.address, object.size);
    const std::string& kind = fields.text("memory");
    const auto* const found = std::find(std::begin(kMemoryKindNames), std::end(kMemoryKindNames), kind);
    if (found == std::end(kMemoryKindNames)) fields.fail("memory", "is not a kind of memory");
    object.memory = static_cast<MemoryKind>(found - std::begin(kMemoryKindNames));
    if (object.memory == MemoryKind::global) {
      object.global = fields.text("global");
      object.image = index_or_none(fields, fields.member("image"), "image", bundle_.images.size());
      if (object.image == kNone) fields.fail("image", "must be the variable's image");
    }
    if (fields.has("start")) object.start = content(fields, "start", object.size);
    if (fields.has("end")) object.end = content(fields, "end", object.size);
    return object;
  }

  BundlePayload payload(const Fields& fields) {
    BundlePayload payload;
    payload.op = static_cast<std::uint32_t>(fields.number("op", bundle_.ops - 1));
    range(fields, "bytes", payload.address, payload.bytes);
    payload.content = content(fields, "content", payload.bytes);
    return payload;
  }

  // No two objects that exist at the same time share bytes.
  void check_overlaps(std::optional<BundleContent> BundleObject::*when, const char* name) const {
    std::map<std::uint64_t, std::uint64_t> taken;
    for (std::size_t i = 0; i < bundle_.objects.size(); ++i) {
      const BundleObject& object = bundle_.objects[i];
      if (!(object.*when)) continue;
      const auto after = taken.lower_bound(object.address);
      const bool free = (after == taken.end() || object.address + object.size <= after->first) &&
                        (after == taken.begin() || std::prev(after)->second <= object.address);
      if (!free) top_.fail("objects", "[" + std::to_string(i) + "] overlaps another one at the step's " + name);
      taken[object.address] = object.address + object.size;
    }
  }

  // Host memory never becomes device memory, nor does that become a variable.
  void check_kinds() const {
    struct Taken {
      std::uint64_t begin = 0, end = 0;
      int sort = 0;
      std::size_t index = 0;
    };
    std::vector<Taken> taken;
    for (std::size_t i = 0; i < bundle_.objects.size(); ++i) {
      const BundleObject& object = bundle_.objects[i];
      const bool host = object.memory == MemoryKind::pinned || object.memory == MemoryKind::registered;
      const int sort = object.memory == MemoryKind::global ? 2 : host ? 1 : 0;
      taken.push_back({object.address, object.address + object.size, sort, i});
    }
    std::sort(taken.begin(), taken.end(), [](const Taken& a, const Taken& b) { return a.begin < b.begin; });
    std::uint64_t ends[3] = {};  // of all earlier ones, by sort
    for (const Taken& one : taken) {
      for (int sort = 0; sort < 3; ++sort)
        if (sort != one.sort && ends[sort] > one.begin)
          top_.fail("objects", "[" + std::to_string(one.index) + "] overlaps one of another kind of memory");
      ends[one.sort] = std::max(ends[one.sort], one.end);
    }
  }

  const Json& root_;
  const FilePlace place_;
  const Fields top_;
  Bundle bundle_;
};

std::uint64_t size_of(std::FILE* file, const std::string& path) {
  struct stat facts {};
  if (::fstat(::fileno(file), &facts) != 0) fail_by_system(path);
  if (!S_ISREG(facts.st_mode)) fail(path, "is not a file");
  return static_cast<std::uint64_t>(facts.st_size);
}

}  // namespace

Bundle parse_manifest(const std::string& text, const std::string& source) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::exception&) {
    fail(source, "is not JSON");
  }
  if (!root.is_object()) fail(source, "must be a JSON object");
  return ManifestReader(root, source).read();
}

BundleFiles::BundleFiles(std::string folder) : folder_(std::move(folder)) {
  while (folder_.size() > 1 && folder_.back() == '/') folder_.pop_back();
  const auto read_all = [](const std::string& path, std::uint64_t most) {
    const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
    if (!file) fail_by_system(path);
    const std::uint64_t size = size_of(file.get(), path);
    if (size > most) fail(path, "is larger than " + std::to_string(most) + " bytes");
    std::string bytes(size, '\0');
    if (std::fread(bytes.data(), 1, size, file.get()) != size) fail(path, "could not be read to its end");
    return bytes;
  };
  bundle_ = parse_manifest(read_all(manifest_path(), kMostManifestBytes), manifest_path());
  memory_.reset(std::fopen(path(kBundleMemory).c_str(), "rbe"));
  if (!memory_) fail_by_system(path(kBundleMemory));
  const std::uint64_t size = size_of(memory_.get(), path(kBundleMemory));
  for (const BundlePiece& piece : bundle_.pieces)
    if (piece.offset > size || piece.bytes > size - piece.offset)
      fail(path(kBundleMemory), "is truncated: it ends at byte " + std::to_string(size) + ", within a piece at " +
                                    std::to_string(piece.offset));
  struct stat facts {};
  if (::stat(trace_path().c_str(), &facts) != 0)
    fail(trace_path(),
         "is missing: the program was killed before it could be copied here. Copy its NIMBLE_TRACE file here");
}

std::string BundleFiles::image(std::uint32_t index) const {
  const BundleImage& image = bundle_.images[index];
  const std::string path = this->path(image.file);
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  if (!file) fail_by_system(path);
  if (size_of(file.get(), path) != image.bytes)
    fail(path, "does not have the " + std::to_string(image.bytes) + " bytes that the manifest says");
  std::string bytes(image.bytes, '\0');
  if (std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) fail(path, "could not be read to its end");
  if (XXH3_64bits(bytes.data(), bytes.size()) != image.digest) fail(path, "is damaged: its digest differs");
  return bytes;
}

void BundleFiles::read(std::uint32_t piece, std::uint32_t bytes, std::uint8_t* out) const {
  if (piece == kNone) {
    std::memset(out, 0, bytes);
    return;
  }
  const BundlePiece& facts = bundle_.pieces[piece];
  const auto offset = static_cast<off_t>(facts.offset);
  if (::fseeko(memory_.get(), offset, SEEK_SET) != 0 || std::fread(out, 1, facts.bytes, memory_.get()) != facts.bytes)
    fail(path(kBundleMemory), "could not be read at " + std::to_string(facts.offset));
  if (XXH3_64bits(out, facts.bytes) != facts.digest)
    fail(path(kBundleMemory), "is damaged: piece " + std::to_string(piece) + " at byte " +
                                  std::to_string(facts.offset) + " has a different digest");
}

}  // namespace nimble::bundle
