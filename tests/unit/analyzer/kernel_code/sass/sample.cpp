#include "tests/unit/analyzer/kernel_code/sass/sample.h"

#include <fstream>
#include <sstream>

namespace nimble::code::sass {
namespace {

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> all;
  for (std::string word; in >> word;) all.insert(word);
  return all;
}

}  // namespace

std::vector<Sampled> read_sample(const std::string& path) {
  std::ifstream file(path);
  std::vector<Sampled> all;
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::string column[6];
    for (std::string& text : column) std::getline(in, text, '\t');
    Sampled one;
    one.arch = static_cast<unsigned>(std::stoul(column[0]));
    one.word = {std::stoull(column[1], nullptr, 16), std::stoull(column[2], nullptr, 16)};
    one.text = column[3];
    one.has_life = column[4] != "-";
    one.written = words(column[4]);
    one.read = words(column[5]);
    all.push_back(one);
  }
  return all;
}

std::string name_in(const std::string& text) {
  std::istringstream in(text);
  std::string name;
  in >> name;
  if (name.starts_with('@')) in >> name;
  return name.substr(0, name.find('.'));
}

}  // namespace nimble::code::sass
