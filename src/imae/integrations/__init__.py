"""Robust training and the audit inside other libraries; each module needs the library it names."""
