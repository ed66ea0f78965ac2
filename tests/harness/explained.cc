#include "tests/harness/explained.h"

#include <cstdio>

namespace axccl::harness {

std::string ExplainedAlgorithm(const std::string& program, const std::string& question) {
  std::string text;
  std::FILE* const pipe = popen((program + " explain " + question + " 2>&1").c_str(), "r");
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  if (pipe != nullptr) pclose(pipe);
  const std::string mark = "\nchosen: ";
  const size_t at = text.find(mark);
  if (at == std::string::npos) return text;
  const size_t begin = at + mark.size();
  return text.substr(begin, text.find(',', begin) - begin);
}

}  // namespace axccl::harness
