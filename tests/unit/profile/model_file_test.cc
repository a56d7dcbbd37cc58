// SPDX-License-Identifier: Apache-2.0
#include "server/profile/model_file.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"

namespace fabricwise {
namespace {

using testing::HasSubstr;

constexpr char kSmall[] = R"({
  "name": "small",
  "hidden_size": 64,
  "num_layers": 2,
  "vocab_size": 100,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 16,
  "num_dense_layers": 2,
  "intermediate_size": 128
})";

// kSmall with `replacement` in the place of `part`.
std::string With(const std::string& part, const std::string& replacement) {
  std::string text = kSmall;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, part.size(), replacement);
}

TEST(ModelFileTest, FillsInWhatIsLeftOut) {
  const auto shape = ParseModelFile(kSmall);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->v_head_dim, 16);
  EXPECT_EQ(shape->attention_kind, AttentionKind::kGqa);
  EXPECT_EQ(shape->dense_weights, WeightFormat());
  EXPECT_EQ(shape->kv_cache_format, NumberFormat::kBf16);
}

TEST(ModelFileTest, EveryPresetPrintsAndParsesBack) {
  for (const ModelShape& preset : Presets()) {
    ModelShape shape = preset;
    shape.kv_cache_format = NumberFormat::kFp8;
    shape.name += " \"quoted\"\n\xc3\xa9";
    shape.repository = "it/self";
    const auto parsed = ParseModelFile(PrintModelFile(shape));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, shape);
  }
}

TEST(ModelFileTest, BytesThatAreNotUtf8PrintAsReplacements) {
  ModelShape shape = *ParseModelFile(kSmall);
  shape.name = "a\xff";
  const auto parsed = ParseModelFile(PrintModelFile(shape));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->name, "a\xef\xbf\xbd");
}

TEST(ModelFileTest, RefusalsNameKeyValueAndWhatIsAllowed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"",
       "the model file is not JSON: it ends after 0 bytes, before its "
       "object does"},
      {"{\"name\": ",
       "the model file is not JSON: it ends after 9 bytes, before its object "
       "does"},
      {"{\"name\": ?}", "the model file is not JSON: error at byte 10 of 11"},
      {"[]", "the model file is array; allowed: a JSON object"},
      {"{}", "model.hidden_size is 0; allowed: 1 to 16777216"},
      {With("64", "1e999"), "the model file has a number out of range"},
      {With("64", "64, \"hidden_size\": 65"),
       "the model file has the key 'hidden_size' twice"},
      {With("hidden_size", "hidden"),
       "the model file is with key 'hidden'; allowed: the fields of "
       "ModelShape"},
      {With("64", "\"64\""),
       "hidden_size is \"64\"; allowed: an integer, 0 to 16777216"},
      {With("64", "64.0"),
       "hidden_size is 64.0; allowed: an integer, 0 to 16777216"},
      {With("64", "-64"),
       "hidden_size is -64; allowed: an integer, 0 to 16777216"},
      {With("64", "null"),
       "hidden_size is null; allowed: an integer, 0 to 16777216"},
      {With("64", "9223372036854775808"),
       "hidden_size is 9223372036854775808; allowed: an integer, 0 to "
       "16777216"},
      {With("64", "2147483648"),
       "model.hidden_size is 2147483648; allowed: 1 to 16777216"},
      {With("\"small\"", "7"), "name is 7; allowed: a text"},
      {With("64", "64, \"tie_word_embeddings\": 1"),
       "tie_word_embeddings is 1; allowed: true, false"},
      {With("64", "64, \"attention_kind\": \"mha\""),
       "attention_kind is 'mha'; allowed: gqa, mla"},
      {With("64", "64, \"attention_kind\": []"),
       "attention_kind is []; allowed: a text"},
      {With("64", "64, \"kv_cache_format\": \"fp7\""),
       "kv_cache_format: number format is 'fp7'; allowed: bf16, fp8_block, "
       "fp8, int4_group, mxfp4, nvfp4"},
      {With("64", "64, \"dense_weights\": \"fp8\""),
       "dense_weights is \"fp8\"; allowed: an object"},
      {With("64", "64, \"dense_weights\": {\"bits\": 8}"),
       "dense_weights is with key 'bits'; allowed: number, group_size"},
      {With("64", "64, \"dense_weights\": {\"number\": 8}"),
       "dense_weights.number is 8; allowed: a text"},
      {With("64", "64, \"dense_weights\": {\"group_size\": 0.5}"),
       "dense_weights.group_size is 0.5; allowed: an integer, 0 to 16777216"},
      {With("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
       "model.num_key_value_heads is 3; allowed: a divisor of "
       "num_attention_heads, 4"},
      {std::string(32, '[') + std::string(32, ']'),
       "the model file is array; allowed: a JSON object"},
      {std::string(33, '['),
       "the model file is nested 33 deep; allowed: at most 32"},
      {std::string((1 << 20) + 1, ' '),
       "the model file is 1048577 bytes long; allowed: at most 1048576"},
  };
  for (const auto& [text, message] : cases) {
    const auto shape = ParseModelFile(text);
    EXPECT_EQ(shape.status(), absl::InvalidArgumentError(message))
        << text.substr(0, 200);
  }
}

TEST(ModelFileTest, BracketsInTextsAreNoNesting) {
  const auto shape =
      ParseModelFile(With("small", "\\\"" + std::string(40, '[') + "\\\\"));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->name, "\"" + std::string(40, '[') + "\\");
}

TEST(ModelFileTest, LongValuesAreCutInMessages) {
  const auto shape =
      ParseModelFile(With("64", "\"" + std::string(10'000, 'x') + "\""));
  EXPECT_LT(shape.status().message().size(), 200u);
  EXPECT_THAT(shape.status().message(), HasSubstr("xxx...; allowed"));
}

}  // namespace
}  // namespace fabricwise
