#include "analyzer/page/html_report.h"

#include <string_view>
#include <utility>

#include "analyzer/page/page_data.h"

// What files.S holds, from one name to the next.
extern "C" const char nimble_page_html[], nimble_page_css[], nimble_page_d3[], nimble_page_script[],
    nimble_page_licence[], nimble_page_end[];

namespace nimble::analyzer {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

// As the text of an element that holds data: nothing in it ends the element. In JSON '<' occurs in texts alone.
std::string for_element(std::string_view json) {
  std::string out;
  for (const char c : json)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

}  // namespace

std::string html_report(const StepAnalysis& analysis, std::uint32_t from) {
  const DeviceModel device;
  const std::string data = for_element(page_data(analysis, idle_ledger(analysis, device), device, from));
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@css@", between(nimble_page_css, nimble_page_d3)},
      {"@data@", data},
      {"@d3@", between(nimble_page_d3, nimble_page_script)},
      {"@script@", between(nimble_page_script, nimble_page_licence)},
      {"@licence@", between(nimble_page_licence, nimble_page_end)},
  };
  std::string_view page = between(nimble_page_html, nimble_page_css);
  std::string out;
  for (const auto& [name, text] : parts) {  // in the order in which they come in page.html
    const std::size_t at = page.find(name);
    out.append(page.substr(0, at)).append(text);
    page.remove_prefix(at + name.size());
  }
  return out.append(page);
}

}  // namespace nimble::analyzer
