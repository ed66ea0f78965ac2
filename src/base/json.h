// A small streaming JSON writer with correct escaping and commas.
//
// Writes to a FILE* it does not own. Calls must nest: Key then one value inside objects, values inside lists. Not
// thread-safe. CloseTo ends what is open, so that a file cut short by a failure still parses.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace axccl {

class JsonWriter {
 public:
  explicit JsonWriter(FILE* out) : out_(out) {}

  JsonWriter& Key(const std::string& name);
  void BeginObject();
  void EndObject();
  void BeginList();
  void EndList();
  void Null();
  void String(const std::string& text);
  void Int(int64_t value);
  void Double(double value);  // NaN and infinities become strings, as JSON has no numbers for them
  void Bool(bool value);
  void Strings(const std::vector<std::string>& texts);  // a list
  // Ends open objects and lists (a pending key with null) until `depth` are left; ends the line at depth 0.
  void CloseTo(size_t depth);

 private:
  enum class State : uint8_t { kEmptyObject, kObject, kEmptyList, kList, kKey };
  void BeforeValue();
  void Quote(const std::string& text);

  FILE* out_;
  std::vector<State> open_;
};

// What `write` writes, as text.
std::string JsonText(const std::function<void(JsonWriter*)>& write);

}  // namespace axccl
