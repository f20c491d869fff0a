#include <gtk/gtk.h>

// Swift sees no macros with casts and no variadic functions.
static inline GtkWidget *gtk_shim_icon(const char *name, int size) {
  GtkWidget *icon = gtk_image_new_from_icon_name(name);
  gtk_image_set_pixel_size(GTK_IMAGE(icon), size);
  return icon;
}

static inline void gtk_shim_prefer_dark(gboolean dark) {
  g_object_set(gtk_settings_get_default(), "gtk-application-prefer-dark-theme", dark, NULL);
}

static inline void gtk_shim_use_style(const char *css) {
  GtkCssProvider *provider = gtk_css_provider_new();
  gtk_css_provider_load_from_data(provider, css, -1);
  gtk_style_context_add_provider_for_display(gdk_display_get_default(), GTK_STYLE_PROVIDER(provider),
                                             GTK_STYLE_PROVIDER_PRIORITY_APPLICATION);
  g_object_unref(provider);
}

static inline GdkRGBA gtk_shim_color(GtkWidget *widget) {
  GdkRGBA color;
  gtk_style_context_get_color(gtk_widget_get_style_context(widget), &color);
  return color;
}
