#include "tools/axccl-plan/units.h"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string_view>

namespace axccl::tools {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

bool ParseScaled(const std::string& text, std::initializer_list<Unit> units, double* value) {
  const char* end = text.data() + text.size();
  double number = 0;
  const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (parsed.ec != std::errc() || !std::isfinite(number) || number < 0) return false;
  const std::string_view suffix(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  for (const Unit& unit : units) {
    if (unit.name != suffix) continue;
    *value = number * unit.scale;
    return true;
  }
  return false;
}

}  // namespace

bool ParseBytes(const std::string& text, uint64_t* bytes) {
  const char* end = text.data() + text.size();
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || end - parsed.ptr > 1) return false;
  int shift = 0;
  if (parsed.ptr != end) {
    const size_t unit = std::string_view("KMGT").find(*parsed.ptr);
    if (unit == std::string_view::npos) return false;
    shift = 10 * static_cast<int>(unit + 1);
  }
  if (number > UINT64_MAX >> shift) return false;
  *bytes = number << shift;
  return true;
}

bool ParseRate(const std::string& text, double* bytes_per_second) {
  double rate = 0;
  const bool parsed = ParseScaled(
      text,
      {{"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}},
      &rate);
  if (!parsed || rate <= 0) return false;
  *bytes_per_second = rate;
  return true;
}

bool ParseTime(const std::string& text, double* seconds) {
  return ParseScaled(text, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, seconds);
}

}  // namespace axccl::tools
