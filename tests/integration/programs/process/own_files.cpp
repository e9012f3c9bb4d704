// A program with files of its own. Does what its words say, one after the other, and prints what it computed:
//
//   steps N         N steps of GPU work
//   marked N        the same, each marked by the C API
//   write FILE      writes fifty lines to FILE, as a profiler does
//   open FILE       opens FILE for that, and writes the lines at the very end
//   chdir FOLDER    goes there
//   close           closes all descriptors that it does not know
//   move A B        renames A
//   remove FILE     removes FILE
//   umask OCTAL     sets the mask
//   fsize BYTES     no file may become larger
//   fork            goes on in a child as well, and waits for that at the end
//   wait            prints "ready", and waits for a line
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr std::size_t kBytes = 4096;

class Work {
 public:
  void step() {
    start();
    ++steps_;
    CHECK(cuMemsetD8Async(first_, static_cast<unsigned char>(steps_), kBytes, stream_));
    CHECK(cuMemcpyDtoDAsync(second_, first_, kBytes / 2, stream_));
    CHECK(cuMemsetD8Async(second_ + kBytes / 2, static_cast<unsigned char>(3 * steps_), kBytes / 4, stream_));
    CHECK(cuStreamSynchronize(stream_));
  }
  void print() {
    if (!stream_) return;
    std::vector<unsigned char> found(kBytes);
    CHECK(cuMemcpyDtoH(found.data(), second_, kBytes));
    std::printf("%d steps, sum %d\n", steps_, std::accumulate(found.begin(), found.end(), 0));
  }

 private:
  void start() {
    if (stream_) return;
    start_driver();
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&first_, kBytes));
    CHECK(cuMemAlloc(&second_, kBytes));
    CHECK(cuMemsetD8(second_, 0, kBytes));
  }

  int steps_ = 0;
  CUstream stream_ = nullptr;
  CUdeviceptr first_ = 0, second_ = 0;
};

void write_lines(std::ostream& out) {
  for (int i = 0; i < 50; ++i) out << "{\"my\": \"profile\"}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  Work work;
  std::vector<std::unique_ptr<std::ofstream>> open;
  std::vector<pid_t> children;
  int failures = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const auto next = [&] { return words.at(++i); };
    if (word == "steps" || word == "marked") {
      for (int count = std::stoi(next()); count > 0; --count) {
        if (word == "marked") nimble_step_begin("step");
        work.step();
        if (word == "marked") nimble_step_end();
      }
    } else if (word == "write") {
      std::ofstream file(next());
      write_lines(file);
    } else if (word == "open") {
      open.push_back(std::make_unique<std::ofstream>(next()));
    } else if (word == "chdir") {
      failures += chdir(next().c_str()) != 0;
    } else if (word == "close") {
      for (int file = 3; file < 65536; ++file) ::close(file);
    } else if (word == "move") {
      const std::string from = next();
      failures += std::rename(from.c_str(), next().c_str()) != 0;
    } else if (word == "remove") {
      failures += std::remove(next().c_str()) != 0;
    } else if (word == "umask") {
      ::umask(static_cast<mode_t>(std::stoi(next(), nullptr, 8)));
    } else if (word == "fsize") {
      const rlim_t bytes = std::stoul(next());
      const rlimit limit{bytes, bytes};
      failures += setrlimit(RLIMIT_FSIZE, &limit) != 0;
    } else if (word == "fork") {
      std::fflush(stdout);
      const pid_t child = fork();
      if (child == 0) children.clear();
      if (child > 0) children.push_back(child);
    } else if (word == "wait") {
      std::puts("ready");
      std::fflush(stdout);
      std::getchar();
    } else {
      std::fprintf(stderr, "own_files: %s\n", word.c_str());
      return 2;
    }
  }
  work.print();
  for (const auto& file : open) write_lines(*file);
  std::fflush(stdout);
  for (const pid_t child : children) {
    int status = 0;
    failures += waitpid(child, &status, 0) != child || status != 0;
  }
  if (failures) std::printf("%d failures\n", failures);
  return 0;
}
