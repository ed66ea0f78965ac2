#include "src/program/stablehlo.h"

#include "src/program/stablehlo/lower.h"
#include "src/program/stablehlo/parser.h"

namespace axccl::program {

Result<Program> ImportStablehlo(std::string_view text) {
  constexpr size_t kMaxText = size_t{1} << 28;  // so that ids have 32 bits
  if (text.size() > kMaxText)
    return MakeStatus(Code::kInvalidArgument, "StableHLO text: %zu bytes; expected at most %zu", text.size(), kMaxText);
  const Result<stablehlo::Module> module = stablehlo::Parser(text).Run();
  if (!module.ok()) return module.status();
  return stablehlo::Lower(module.value(), text);
}

}  // namespace axccl::program
