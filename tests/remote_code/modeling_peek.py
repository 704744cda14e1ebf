"""Code as it comes with a checkpoint: a small video model that transformers does not know.

Its attention calls `scaled_dot_product_attention` itself, imported by name, or does its softmax by hand where
the configuration says so. Nothing of it is known to this project; tests copy this file into a checkpoint.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutputWithPast

_CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


class PeekConfig(PreTrainedConfig):
    model_type = "peek"

    def __init__(
        self,
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        patch_values=1176,
        merged_patches=4,
        frames_per_unit=2,
        video_token_id=0,
        image_token_id=0,
        by_hand=False,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.max_position_embeddings = max_position_embeddings
        self.patch_values = patch_values
        self.merged_patches = merged_patches
        self.frames_per_unit = frames_per_unit
        self.video_token_id = video_token_id
        self.image_token_id = image_token_id
        self.by_hand = by_hand
        super().__init__(**kwargs)


class PeekAttention(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        self.number, self.by_hand = number, config.by_hand
        self.q = nn.Linear(config.hidden_size, self.heads * self.size)
        self.k = nn.Linear(config.hidden_size, self.kv_heads * self.size)
        self.v = nn.Linear(config.hidden_size, self.kv_heads * self.size)
        self.out = nn.Linear(self.heads * self.size, config.hidden_size)

    def forward(self, states, padding, cache):
        batch, length, _ = states.shape
        q = self.q(states).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(states).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(states).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        if cache is not None:
            k, v = cache.update(k, v, self.number)
        mask = None
        if padding is not None:
            past = k.shape[2] - length
            causal = torch.ones(length, k.shape[2], dtype=torch.bool, device=k.device).tril(past)
            mask = causal & padding[:, None, None, :].bool()
            mask = mask | torch.eye(length, k.shape[2], dtype=torch.bool, device=k.device).roll(past, 1)
        if self.by_hand:
            k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
            scores = q @ k.transpose(-1, -2) * self.size**-0.5
            if mask is None and length > 1:
                mask = torch.ones(length, k.shape[2], dtype=torch.bool, device=k.device).tril()
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            found = scores.softmax(dim=-1) @ v
        else:
            found = scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None and length > 1, enable_gqa=True
            )
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))


class PeekBlock(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.attend = PeekAttention(config, number)
        self.ff = nn.Sequential(
            nn.LayerNorm(config.hidden_size),
            nn.Linear(config.hidden_size, 2 * config.hidden_size),
            nn.GELU(),
            nn.Linear(2 * config.hidden_size, config.hidden_size),
        )

    def forward(self, states, padding, cache):
        states = states + self.attend(self.norm(states), padding, cache)
        return states + self.ff(states)


class PeekPreTrainedModel(PreTrainedModel):
    config_class = PeekConfig
    base_model_prefix = "peek"
    _supports_sdpa = True

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.2)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)


class PeekDecoder(PeekPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.blocks = nn.ModuleList(PeekBlock(config, number) for number in range(config.num_hidden_layers))
        self.last_norm = nn.LayerNorm(config.hidden_size)
        self.post_init()

    def forward(self, embeddings, padding, cache):
        past = 0 if cache is None else cache.get_seq_length()
        places = torch.arange(past, past + embeddings.shape[1], device=embeddings.device)
        states = embeddings + self.places(places)
        for block in self.blocks:
            states = block(states, padding, cache)
        return self.last_norm(states)


class PeekForVideo(PeekPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.eye = nn.Linear(config.patch_values * config.merged_patches, config.hidden_size)
        self.decoder = PeekDecoder(config)
        self.vocabulary = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.decoder.words

    def get_output_embeddings(self):
        return self.vocabulary

    def look(self, pixels):
        return BaseModelOutputWithPooling(
            pooler_output=self.eye(pixels.reshape(-1, self.config.patch_values * self.config.merged_patches))
        )

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        pixel_values_videos=None,
        video_grid_thw=None,
        pixel_values=None,
        image_grid_thw=None,
        cache=None,
        past_key_values=None,
        use_cache=None,
        mm_token_type_ids=None,
        second_per_grid_ts=None,
        return_dict=True,
    ):
        cache = cache if cache is not None else past_key_values
        if use_cache and cache is None:
            cache = DynamicCache()
        embeddings = self.decoder.words(input_ids)
        for pixels, token in (
            (pixel_values_videos, self.config.video_token_id),
            (pixel_values, self.config.image_token_id),
        ):
            here = input_ids == token
            if pixels is not None and here.any():
                embeddings = embeddings.masked_scatter(here[..., None], self.look(pixels).pooler_output)
        padding = attention_mask if attention_mask is not None and not attention_mask.all() else None
        if cache is not None and cache.get_seq_length() and input_ids.shape[1] > 1 and padding is None:
            padding = torch.ones(input_ids.shape[0], cache.get_seq_length() + input_ids.shape[1])
        states = self.decoder(embeddings, padding, cache)
        return CausalLMOutputWithPast(logits=self.vocabulary(states), **{_CACHE: cache})
