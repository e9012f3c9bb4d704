// Runs a fuzz target without a fuzzing engine: seeded damage to the files of a corpus. For ctest, with any compiler.
//
//   <target> ROUNDS FILE...
//
// Each round damages a random corpus file in one of the ways that files get damaged: bytes changed, numbers replaced by
// extreme ones, pieces cut out, doubled, or swapped. Clang builds the same targets with libFuzzer (-DNIMBLE_FUZZ=ON).
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace {

constexpr const char* kExtremes[] = {
    "0",    "-1", "1",  "4294967295", "4294967296", "18446744073709551615",    "1e999",
    "null", "[]", "{}", "\"\"",       "true",       "99999999999999999999999", "2147483648"};

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

std::string damaged(std::string text, std::mt19937& random) {
  const auto at = [&] { return text.empty() ? 0 : random() % text.size(); };
  for (unsigned times = 1 + random() % 3; times > 0 && !text.empty(); --times) {
    const std::size_t place = at(), length = random() % 40;
    switch (random() % 5) {
      case 0:
        text[place] = static_cast<char>(random());
        break;
      case 1: {
        const std::size_t digit = text.find_first_of("0123456789", place);
        if (digit == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, (end == std::string::npos ? text.size() : end) - digit,
                     kExtremes[random() % std::size(kExtremes)]);
        break;
      }
      case 2:
        text.erase(place, length);
        break;
      case 3:
        text.insert(place, text.substr(at(), length));
        break;
      case 4:
        text.resize(place);
        break;
    }
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s ROUNDS FILE...\n", argv[0]);
    return 2;
  }
  std::vector<std::string> corpus;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (corpus.back().empty()) {
      std::fprintf(stderr, "%s: empty or unreadable\n", argv[i]);
      return 2;
    }
    run(corpus.back());
  }
  std::mt19937 random(2020);
  for (long round = std::atol(argv[1]); round > 0; --round) run(damaged(corpus[random() % corpus.size()], random));
  std::printf("survived %s rounds\n", argv[1]);
  return 0;
}
