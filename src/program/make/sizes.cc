#include "src/program/make/sizes.h"

#include <string>

#include "src/program/kinds.h"

namespace axccl::program {

Status CheckSizes(std::string_view model, DataType type,
                  const std::vector<std::pair<std::string_view, int64_t>>& sizes) {
  const std::string name(model);
  for (const auto& [size, value] : sizes) {
    const int64_t most = size == "layers" ? kMostLayers : kMostSize;
    if (value < 1 || value > most) {
      return MakeStatus(Code::kInvalidArgument, "make %s: %s is %lld, must be 1 to %lld", name.c_str(),
                        std::string(size).c_str(), static_cast<long long>(value), static_cast<long long>(most));
    }
  }
  const bool is_number = type != DataType::kBool && !IsUnsigned(type) && !NameOf(type).empty();
  if (is_number) return Status();
  return MakeStatus(Code::kInvalidArgument, "make %s: weights are floats or signed integers, such as f32 and i32",
                    name.c_str());
}

}  // namespace axccl::program
