#include "shim/record/observers/bundle/bundle_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/quiet_file.h"
#include "nimble/internal/version.h"
#include "shim/record/trace/trace_text.h"

namespace nimble::shim {

namespace {

using Json = nlohmann::ordered_json;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string failure(const std::string& path) { return path + ": " + std::strerror(errno); }

// Closes it; whether everything was written.
bool close(File& file) { return std::fclose(file.release()) == 0; }

// Creates a new file.
File make_file(const std::string& path) {
  const int number = open_quiet(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (number < 0) return nullptr;
  File file(::fdopen(number, "wb"));
  if (file) {
    ::fchmod(number, 0600);  // whatever the process's umask
  } else {
    ::close(number);
  }
  return file;
}

std::string write_file(const std::string& path, const std::string& bytes) {
  File file = make_file(path);
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() || !close(file))
    return failure(path);
  return {};
}

std::string make_folders(const std::string& path) {
  for (std::size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return failure(part);
  }
  return {};
}

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

// null for a piece of zeros, so that no number has to stand for it.
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
  const MemoryReserve reserve;  // building a JSON value does not survive running out of memory halfway
  Json json;
  const JsonEnds ends(json);
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
  File file = make_file(path);
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

std::string image_file(std::size_t which) { return "image-" + std::to_string(which) + ".bin"; }

// Whether the manifest with this text lists the file.
bool lists(const std::string& manifest, const std::string& file) {
  return manifest.find('"' + file + '"') != std::string::npos;
}

std::string text_of(const std::string& path) {
  constexpr std::size_t kMostManifest = std::size_t{1} << 30;
  std::string text;
  if (what_is_at(path)) read_quiet(path.c_str(), kMostManifest, text);
  return text;
}

// A file in the folder that has the name of a bundle's file but is not ours; empty if there is none. The manifest tells
// which files belong to a bundle.
std::string in_the_way(const std::string& folder, const Bundle& bundle) {
  const std::string manifest = folder + "/" + kBundleManifest;
  FileFacts found;
  const bool is_bundle = what_is_at(manifest) && !why_not_replaced(manifest, FileKind::manifest, found);
  const std::string text = is_bundle ? text_of(manifest) : std::string();
  for (const auto& [name, kind] : {std::pair{std::string(kBundleManifest), FileKind::manifest},
                                   {std::string(kBundleManifest) + ".part", FileKind::manifest},
                                   {std::string(kBundleTrace), FileKind::trace}})
    if (why_not_replaced(folder + "/" + name, kind, found)) return name;
  std::vector<std::string> files{kBundleMemory};
  for (const BundleImage& image : bundle.images) files.push_back(image.file);
  for (const std::string& name : files) {
    const auto there = what_is_at(folder + "/" + name);
    const bool ours = is_bundle && (name == kBundleMemory || lists(text, name));
    if (there && (!ours || !S_ISREG(there->stx_mode))) return name;
  }
  return {};
}

}  // namespace

BundleFolder::BundleFolder() {
  char folder[PATH_MAX];
  if (::getcwd(folder, sizeof folder)) base_ = std::string(folder) + "/";
}

std::string BundleFolder::place_of(const std::string& folder) const {
  return folder.empty() || folder.front() == '/' ? folder : base_ + folder;
}

std::string BundleFolder::take(const std::string& wanted, const Bundle& bundle) {
  if (!path_.empty()) {
    const std::string file = in_the_way(place_, bundle);
    return file.empty() ? std::string() : path_ + " holds a " + file + " that was not written by Nimble";
  }
  std::string name = wanted;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  for (std::uint32_t which = 0; which < kMostNames; ++which) {
    const std::string shown = name_in_place(name, which), folder = place_of(shown);
    const auto say = [&](const std::string& why) {
      if (why_other_.empty()) why_other_ = why;
    };
    const auto there = what_is_at(folder);
    if (there && !S_ISDIR(there->stx_mode)) {
      say(S_ISLNK(there->stx_mode) ? "is a link" : "is not a folder");
      continue;
    }
    if (std::string why = make_folders(folder); !why.empty()) return why;
    if (const int error = lock_.open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW))
      return shown + ": " + std::strerror(error);
    if (::flock(lock_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      say("is being written by another process");
      continue;
    }
    if (const std::string file = in_the_way(folder, bundle); !file.empty()) {
      say("holds a " + file + " that was not written by Nimble");
      continue;
    }
    path_ = shown;
    place_ = folder;
    return {};
  }
  return wanted + ": " + std::strerror(EEXIST);
}

std::string BundleFolder::write(const std::string& wanted, Bundle& bundle, ContentStore& store,
                                const std::vector<std::string>& images) {
  QuietSignals quiet;
  std::string why = write_files(wanted, bundle, store, images);
  if (!why.empty()) quiet.failed(errno);
  return why;
}

std::string BundleFolder::write_files(const std::string& wanted, Bundle& bundle, ContentStore& store,
                                      const std::vector<std::string>& images) {
  bundle.images.clear();
  for (std::size_t i = 0; i < images.size(); ++i)
    bundle.images.push_back({image_file(i), images[i].size(), XXH3_64bits(images[i].data(), images[i].size())});
  if (std::string why = take(wanted, bundle); !why.empty()) return why;
  const std::string manifest = place_ + "/" + kBundleManifest, memory = place_ + "/" + kBundleMemory;
  const std::string beginning = manifest + ".part";
  std::vector<std::string> files;
  // Removes the previous bundle's images, which may be more, while its manifest still lists them.
  const std::string before = text_of(manifest);
  for (std::size_t i = 0; i < images.size() || lists(before, image_file(i)); ++i) {
    const std::string image = place_ + "/" + image_file(i);
    const auto there = what_is_at(image);
    if (there && S_ISREG(there->stx_mode)) files.push_back(image);
  }
  files.insert(files.end(), {manifest, beginning, memory, place_ + "/" + kBundleTrace});
  for (const std::string& file : files)
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return failure(file);
  for (std::size_t i = 0; i < images.size(); ++i)
    if (std::string why = write_file(place_ + "/" + bundle.images[i].file, images[i]); !why.empty()) return why;
  if (std::string why = write_memory(memory, bundle, store); !why.empty()) return why;
  if (std::string why = write_file(beginning, manifest_text(bundle)); !why.empty()) return why;
  return std::rename(beginning.c_str(), manifest.c_str()) == 0 ? std::string() : failure(manifest);
}

// Unlocks, beyond closing this descriptor: a forked child may still hold a copy.
void BundleFolder::let_go() noexcept {
  if (lock_.is_ours()) ::flock(lock_.number(), LOCK_UN);
  lock_.close();
}

std::string BundleFolder::add_trace(const std::string& trace) {
  QuietSignals quiet;
  std::string why = copy_trace(trace);
  if (!why.empty()) quiet.failed(errno);
  return why;
}

std::string BundleFolder::copy_trace(const std::string& trace) const {
  const std::string path = place_ + "/" + kBundleTrace;
  const auto there = what_is_at(path), given = what_is_at(trace);
  if (there && given && same_file(*there, *given)) return {};
  if (given && !S_ISREG(given->stx_mode)) return trace + ": is not a file";
  const int number = open_quiet(trace.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  const File from(number >= 0 ? ::fdopen(number, "rb") : nullptr);
  if (!from) return failure(trace);
  File to = make_file(path);
  if (!to) return failure(path);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), from.get()))
    if (std::fwrite(buffer.data(), 1, bytes, to.get()) != bytes) return failure(path);
  if (std::ferror(from.get())) return failure(trace);
  return close(to) ? std::string() : failure(path);
}

}  // namespace nimble::shim
