#include "src/program/check/rounds.h"

#include <gtest/gtest.h>

#include <string>

#include "src/program/text.h"

namespace axccl::program {
namespace {

std::optional<int64_t> RoundsOf(const std::string& type, int first, const std::string& step, int by,
                                const std::string& direction, int limit) {
  const auto constant = [&](int id, int value) {
    return "  %" + std::to_string(id) + " " + type + "[] = constant value=" + std::to_string(value) + "\n";
  };
  const Program program =
      Parse("axccl-program 1\nranks 1\npart main on [0]\n" + constant(0, first) + constant(1, by) + constant(2, limit) +
            "  %3 " + type + "[] = while %0\n  cond\n    argument %4 " + type +
            "[]\n    %5 i1[] = compare %4 %2 direction=" + direction + "\n    return %5\n  body\n    argument %6 " +
            type + "[]\n    %7 " + type + "[] = " + step + "\n    return %7\n  return\n")
          .value();
  return Rounds(program.parts[0]).Of(program.parts[0].function.operations[3]);
}

bool Holds(int a, const std::string& direction, int b) {
  if (direction == "EQ") return a == b;
  if (direction == "NE") return a != b;
  if (direction == "GE") return a >= b;
  if (direction == "GT") return a > b;
  return direction == "LE" ? a <= b : a < b;
}

// What is shown is right, and everything is that ends before the counter wraps around.
TEST(RoundsTest, AreThoseOfACounter) {
  int known = 0;
  for (const bool is_signed : {false, true}) {
    const int least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    for (const char* direction : {"EQ", "NE", "GE", "GT", "LE", "LT"}) {
      for (const char* step : {"add %6 %1", "add %1 %6", "subtract %6 %1"}) {
        for (const int first : {least, least + 1, 0, 5, most - 2, most}) {
          for (const int by : {-128, -3, -1, 0, 1, 2, 7, 127}) {
            for (const int limit : {least, 0, 4, 5, 6, 19, most}) {
              if (by < least) continue;
              const int change = step[0] == 's' ? -by : by;
              int64_t rounds = 0;
              int counter = first;
              while (counter >= least && counter <= most && rounds < 1000 && Holds(counter, direction, limit)) {
                counter += change;
                ++rounds;
              }
              const bool ends = counter >= least && counter <= most && rounds < 1000;
              const auto found = RoundsOf(is_signed ? "i8" : "u8", first, step, by, direction, limit);
              if (found) {
                EXPECT_TRUE(ends && *found == rounds) << first << step << by << direction << limit << ": " << *found;
              }
              if (ends && direction != std::string("EQ")) {
                EXPECT_TRUE(found) << first << step << by << direction << limit;
              }
              known += found ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(known, 1000);
}

TEST(RoundsTest, OtherLoopsHaveNone) {
  EXPECT_FALSE(RoundsOf("i32", 0, "add %6 %6", 1, "LT", 8));
  EXPECT_FALSE(RoundsOf("i32", 0, "multiply %6 %1", 1, "LT", 8));
  EXPECT_FALSE(RoundsOf("i32", 0, "subtract %1 %6", 1, "LT", 8));
  EXPECT_FALSE(RoundsOf("f32", 0, "add %6 %1", 1, "LT", 8));
  EXPECT_EQ(RoundsOf("i32", 0, "add %6 %1", 1, "LT", 8), 8);
}

}  // namespace
}  // namespace axccl::program
