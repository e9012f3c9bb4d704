#include "shim/launcher/program.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace nimble::launcher {
namespace {

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// Whether the kernel would start the file in secure-execution mode, where the loader ignores paths in LD_PRELOAD.
bool gains_privileges(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return false;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != ::getgid()) return true;
  return ::geteuid() != 0 && ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

// The interpreter that the first line of a script names.
std::optional<std::string> script_interpreter(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  char magic[2] = {};
  if (!in.read(magic, 2) || magic[0] != '#' || magic[1] != '!' || !std::getline(in, line)) return std::nullopt;
  std::istringstream words(line);
  std::string interpreter;
  words >> interpreter;
  return interpreter;
}

enum class Elf { other, foreign, unlinked, dynamic };

// `foreign`: of another word size. `unlinked`: no dynamic loader runs it.
Elf classify(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!in.read(reinterpret_cast<char*>(header.e_ident), EI_NIDENT)) return Elf::other;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Elf::other;
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return Elf::foreign;
  in.seekg(0);
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header)) return Elf::other;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return Elf::other;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (!in.read(reinterpret_cast<char*>(segments.data()),
               static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)))) {
    return Elf::other;
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_INTERP) return Elf::dynamic;
  }
  return Elf::unlinked;
}

}  // namespace

std::optional<std::string> find_program(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return name;
  std::optional<std::string> first;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (!is_file(candidate)) continue;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (!first) first = std::move(candidate);
  }
  return first;
}

std::optional<std::string> why_no_preload(const std::string& file) {
  const std::string binary = script_interpreter(file).value_or(file);
  const std::string subject = binary == file ? file : file + " (run by " + binary + ")";
  if (gains_privileges(binary))
    return subject + " gains privileges as it starts (set-user-id, set-group-id, capabilities)";
  switch (classify(binary)) {
    case Elf::unlinked:
      return subject + " is statically linked";
    case Elf::foreign:
      return subject + " is not a 64-bit program";
    case Elf::other:
    case Elf::dynamic:
      break;
  }
  return std::nullopt;
}

}  // namespace nimble::launcher
