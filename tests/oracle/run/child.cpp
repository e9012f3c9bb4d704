#include "tests/oracle/run/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace nimble::oracle {
namespace {

std::string folder_of_program() {
  char path[PATH_MAX];
  const std::string self = realpath("/proc/self/exe", path) != nullptr ? path : "";
  return self.substr(0, self.rfind('/'));
}

[[noreturn]] void be_child(const std::function<std::string()>& program, unsigned patience_s, int out,
                           const std::string& log) {
  alarm(patience_s);
  const int errors = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  const std::string bytes = program();
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(out, bytes.data() + done, bytes.size() - done);
    if (written <= 0) std::_Exit(3);
    done += static_cast<std::size_t>(written);
  }
  close(out);
  std::exit(0);  // the shim finishes its files on the way
}

std::string read_all(int file) {
  std::string bytes;
  char part[65536];
  for (ssize_t got = 0; (got = read(file, part, sizeof part)) > 0;) bytes.append(part, static_cast<std::size_t>(got));
  return bytes;
}

}  // namespace

void preload_nimble(char** argv, const char* preload_first) {
  if (std::getenv("NIMBLE_ORACLE_LOADED") != nullptr) return;
  const std::string bin = folder_of_program(), build = bin.substr(0, bin.rfind('/'));
  std::string preload = preload_first != nullptr && *preload_first != '\0' ? std::string(preload_first) + ":" : "";
  preload += build + "/lib/libnimble.so";
  setenv("LD_PRELOAD", preload.c_str(), 1);
  setenv("LD_LIBRARY_PATH", (build + "/simcuda").c_str(), 1);
  // Any mode but off: what it is for each run is decided when that run first calls the driver.
  setenv("NIMBLE_MODE", "record", 1);
  setenv("NIMBLE_LOG", "warn", 1);
  setenv("NIMBLE_HOLD_US", "60000000", 1);
  setenv("NIMBLE_ORACLE_LOADED", "1", 1);
  execv("/proc/self/exe", argv);
  throw std::runtime_error("cannot start anew");
}

Run run_in_child(const std::function<std::string()>& program, const Settings& settings, const std::string& folder,
                 unsigned patience_s) {
  Run run;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string log = folder + "/log";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    be_child(program, patience_s, ends[1], log);
  }
  close(ends[1]);
  if (child < 0) throw std::runtime_error("cannot fork");
  run.answer = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::ifstream said(log);
  run.log.assign(std::istreambuf_iterator<char>(said), {});
  run.hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  if (run.hung) {
    run.failure = "it did not come to its end in " + std::to_string(patience_s) + " s";
  } else if (WIFSIGNALED(status)) {
    run.failure = "it was ended by signal " + std::to_string(WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    run.failure = "it ended with status " + std::to_string(WEXITSTATUS(status));
  } else if (run.answer.empty()) {
    run.failure = "it told nothing";
  }
  return run;
}

PlainRuns::PlainRuns() {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string program = folder_of_program() + "/random_steps";
  process_ = fork();
  if (process_ == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (const char* name : {"LD_PRELOAD", "NIMBLE_MODE"}) unsetenv(name);
    execl(program.c_str(), "random_steps", "--serve", static_cast<char*>(nullptr));
    std::_Exit(127);
  }
  close(to[0]);
  close(from[1]);
  ask_ = fdopen(to[1], "w");
  answer_ = fdopen(from[0], "r");
  signal(SIGPIPE, SIG_IGN);
}

PlainRuns::~PlainRuns() {
  std::fclose(ask_);
  std::fclose(answer_);
  waitpid(process_, nullptr, 0);
}

std::string PlainRuns::ask(const std::string& line) {
  std::fprintf(ask_, "%s\n", line.c_str());
  std::fflush(ask_);
  std::string answer;
  for (int c = 0; (c = std::fgetc(answer_)) != EOF && c != '\n';) answer += static_cast<char>(c);
  return answer;
}

}  // namespace nimble::oracle
