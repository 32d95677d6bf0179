"""The index backends: one small interface (`base`), an implementation per store."""
