#include "shim/bundle/bundle_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "nimble/version.h"
#include "shim/trace_text.h"

namespace nimble::shim {

namespace {

using Json = nlohmann::ordered_json;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string failure(const std::string& path) { return path + ": " + std::strerror(errno); }

// Closes it; whether all that was written is there.
bool close(File& file) { return std::fclose(file.release()) == 0; }

std::string write_file(const std::string& path, const std::string& bytes) {
  File file(std::fopen(path.c_str(), "wbe"));
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() || !close(file))
    return failure(path);
  return {};
}

// Whether both are names of one file that is there. stat() is a symbol of glibc 2.33 where this is built on a newer
// one.
bool same_file(const std::string& a, const std::string& b) {
  struct statx one {
  }, other{};
  return statx(AT_FDCWD, a.c_str(), 0, STATX_INO, &one) == 0 && statx(AT_FDCWD, b.c_str(), 0, STATX_INO, &other) == 0 &&
         one.stx_dev_major == other.stx_dev_major && one.stx_dev_minor == other.stx_dev_minor &&
         one.stx_ino == other.stx_ino;
}

std::string make_folders(const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) return failure(part);
  }
  return {};
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// null for a piece of zeros, so that the list needs no number that means none.
Json list_of(const BundleContent& content) {
  Json list = Json::array();
  for (const std::uint32_t piece : content) list.push_back(piece == kNone ? Json() : Json(piece));
  return list;
}

Json index_or_null(std::uint32_t index) { return index == kNone ? Json() : Json(index); }

Json list_of(const std::vector<BundlePayload>& payloads) {
  Json list = Json::array();
  for (const BundlePayload& payload : payloads) {
    Json item{{"op", payload.op}, {"address", payload.address}, {"bytes", payload.bytes}};
    item["content"] = list_of(payload.content);
    list.push_back(std::move(item));
  }
  return list;
}

Json list_of(const std::vector<BundleObject>& objects) {
  Json list = Json::array();
  for (const BundleObject& object : objects) {
    Json item{{"address", object.address}, {"size", object.size}, {"memory", name(object.memory)}};
    if (object.memory == MemoryKind::global) item["global"] = object.global, item["image"] = object.image;
    if (object.start) item["start"] = list_of(*object.start);
    if (object.end) item["end"] = list_of(*object.end);
    list.push_back(std::move(item));
  }
  return list;
}

std::string manifest_text(const Bundle& bundle) {
  Json json;
  json["nimble_bundle"] = kBundleVersion;
  json["nimble"] = kVersion;
  json["step"] = {{"first", bundle.first_seq}, {"last", bundle.last_seq}, {"ops", bundle.ops}};
  json["images_of_ops"] = Json::array();
  for (const std::uint32_t image : bundle.images_of_ops) json["images_of_ops"].push_back(index_or_null(image));
  json["images"] = Json::array();
  for (const BundleImage& image : bundle.images)
    json["images"].push_back({{"file", image.file}, {"bytes", image.bytes}, {"digest", hex(image.digest)}});
  json["objects"] = list_of(bundle.objects);
  json["sources"] = list_of(bundle.sources);
  json["results"] = list_of(bundle.results);
  json["hidden"] = bundle.hidden;
  json["pieces"] = Json::array();
  for (const BundlePiece& piece : bundle.pieces)
    json["pieces"].push_back(Json::array({piece.offset, piece.bytes, hex(piece.digest)}));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string write_memory(const std::string& path, Bundle& bundle, ContentStore& store) {
  File file(std::fopen(path.c_str(), "wbe"));
  if (!file) return failure(path);
  bool good = true;
  const auto put = [&](BundleContent& content) { good = good && store.write(file.get(), content, bundle.pieces); };
  for (BundleObject& object : bundle.objects) {
    if (object.start) put(*object.start);
    if (object.end) put(*object.end);
  }
  for (BundlePayload& source : bundle.sources) put(source.content);
  for (BundlePayload& result : bundle.results) put(result.content);
  return good && close(file) ? std::string() : failure(path);
}

}  // namespace

std::string write_bundle(const std::string& folder, Bundle& bundle, ContentStore& store,
                         const std::vector<std::string>& images, const std::string& trace) {
  if (std::string why = make_folders(folder); !why.empty()) return why;
  const std::string manifest = folder + "/" + kBundleManifest, memory = folder + "/" + kBundleMemory;
  const std::string beginning = manifest + ".part", copy = folder + "/" + kBundleTrace;
  bundle.images.clear();
  for (std::size_t i = 0; i < images.size(); ++i)
    bundle.images.push_back(
        {"image-" + std::to_string(i) + ".bin", images[i].size(), XXH3_64bits(images[i].data(), images[i].size())});
  // The trace is being written all the while, perhaps into the bundle.
  std::vector<std::string> files{manifest, beginning, memory};
  for (const BundleImage& image : bundle.images) files.push_back(folder + "/" + image.file);
  for (const std::string& file : files)
    if (same_file(file, trace)) return file + ": is the trace. Give NIMBLE_TRACE another name";
  if (::unlink(manifest.c_str()) != 0 && errno != ENOENT) return failure(manifest);
  if (!same_file(copy, trace)) ::unlink(copy.c_str());
  for (std::size_t i = 0; i < images.size(); ++i)
    if (std::string why = write_file(folder + "/" + bundle.images[i].file, images[i]); !why.empty()) return why;
  if (std::string why = write_memory(memory, bundle, store); !why.empty()) return why;
  if (std::string why = write_file(beginning, manifest_text(bundle)); !why.empty()) return why;
  return std::rename(beginning.c_str(), manifest.c_str()) == 0 ? std::string() : failure(manifest);
}

std::string add_trace(const std::string& folder, const std::string& trace) {
  const std::string path = folder + "/" + kBundleTrace;
  if (same_file(path, trace)) return {};
  const File from(std::fopen(trace.c_str(), "rbe"));
  if (!from) return failure(trace);
  File to(std::fopen(path.c_str(), "wbe"));
  if (!to) return failure(path);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), from.get()))
    if (std::fwrite(buffer.data(), 1, bytes, to.get()) != bytes) return failure(path);
  if (std::ferror(from.get())) return failure(trace);
  return close(to) ? std::string() : failure(path);
}

}  // namespace nimble::shim
