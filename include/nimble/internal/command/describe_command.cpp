#include "nimble/internal/command/describe_command.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

// CLI11 writes the type of a value and what checks it as one text: TEXT:{a,b}, or UINT:UINT in [1 - 8].
struct Value {
  std::string takes;
  std::vector<std::string> words;
  std::string limits;
};

std::string_view between(std::string_view text, std::string_view begin, char end) {
  const std::size_t at = text.find(begin);
  if (at == std::string_view::npos || !text.ends_with(end)) return {};
  text.remove_prefix(at + begin.size());
  text.remove_suffix(1);
  return text;
}

Value value_of(const CLI::Option& option) {
  Value value;
  if (option.get_items_expected_max() == 0) return value;
  const std::string text = option.get_type_name();
  const std::size_t words = text.find(":{"), range = text.find(" in [");
  const std::size_t limits = range == std::string::npos ? range : text.rfind(':', range);
  value.takes = text.substr(0, std::min(words, limits));
  if (const std::string_view set = between(text, ":{", '}'); !set.empty())
    value.words = CLI::detail::split(std::string(set), ',');
  value.limits = between(text, " in [", ']');
  return value;
}

Json value_json(const CLI::Option& option, const CommandFacts& facts) {
  Value value = value_of(option);
  if (const auto given = facts.words.find(&option); given != facts.words.end()) value.words = given->second;
  return {{"help", option.get_description()},
          {"takes", value.takes},
          {"count", option.get_items_expected_max()},
          {"words", value.words},
          {"limits", value.limits},
          {"fallback", option.get_default_str()},
          {"repeatable", option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
                             (option.get_allow_extra_args() && option.get_items_expected_max() > 0)}};
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

std::string described_command(const CLI::App& app, const CommandFacts& facts) {
  Json options = Json::array(), positionals = Json::array(), subcommands = Json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    Json json;
    if (option->nonpositional())
      json["names"] = names_of(*option);
    else
      json["name"] = option->get_name();
    json.update(value_json(*option, facts));
    (option->nonpositional() ? options : positionals).push_back(std::move(json));
  }
  const auto add = [&](const std::string& name, const std::string& help) {
    subcommands.push_back({{"name", name}, {"help", help}});
  };
  for (const CLI::App* each : app.get_subcommands({})) add(each->get_name(), each->get_description());
  for (const CommandFacts::Subcommand& each : facts.subcommands) add(each.name, each.help);
  const Json all = {{"about", app.get_description()},
                    {"footer", app.get_footer()},
                    {"options", std::move(options)},
                    {"positionals", std::move(positionals)},
                    {"subcommands", std::move(subcommands)}};
  return all.dump(1) + "\n";
}

void add_describe(CLI::App& app, CommandFacts facts) {
  app.add_flag_callback("--describe",
                        [&app, facts = std::move(facts)] {
                          std::cout << described_command(app, facts);
                          throw CLI::Success();
                        })
      ->group("");
}

}  // namespace nimble
