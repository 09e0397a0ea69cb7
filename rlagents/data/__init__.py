"""Where tasks and text come from: prompt streams, tokenizers, dataset builders."""
